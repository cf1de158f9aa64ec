"""The trial of a program that needs one cell, and perhaps a checker with a cell of its own beside it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from autoclave.core import Program, SandboxFault
from autoclave.judge.kinds.interface import Judgement, Trial
from autoclave.judge.languages import CompileError, Environment
from autoclave.judge.special import SpecialJudge
from autoclave.sandbox import Cell, Limits, Sandbox

JudgeTest = Callable[[Cell, int, str], Judgement]
"""Judges test `index` in a cell, of a program with this text."""


class OneCellTrial:
    """A cell, and the function that judges a test in it."""

    def __init__(self, cell: Cell, program: Program, judge: JudgeTest, special: SpecialJudge | None = None) -> None:
        """`special` is closed together with the cell."""
        self.compile_error = cell.compile_error
        self._cell = cell
        self._judge = judge
        self._special = special
        self._source = program.source

    def judge(self, index: int) -> Judgement:
        return self._judge(self._cell, index, self._source)

    def __enter__(self) -> Self:
        self._cell.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._special is not None:
                self._special.close()
        finally:
            self._cell.__exit__(kind, error, trace)


class RefusedTrial:
    """The trial of a program that did not get as far as a cell."""

    def __init__(self, error: CompileError) -> None:
        self.compile_error: str | None = error.message

    def judge(self, index: int) -> Judgement:
        raise SandboxFault(f"test {index}: a program that compiled before does not compile now")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""


def start_in_one_cell(
    environment: Environment,
    sandbox: Sandbox,
    program: Program,
    limits: Limits,
    judge: JudgeTest,
    special: SpecialJudge | None = None,
) -> Trial:
    """Build `program` and put it into a cell of its own.

    Raises:
        HostError: the host lacks what the environment needs.
        SandboxFault: no cell could be made.
    """
    built = environment.build(sandbox, program)
    if isinstance(built, CompileError):
        return RefusedTrial(built)
    return OneCellTrial(sandbox.open(built.content, built.profile, limits, built.runner), program, judge, special)
