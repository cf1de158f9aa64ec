"""Protocol of a kind of tests: trials, each of one program, whose tests are judged one at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from autoclave.core import Outcome, Program, SandboxFault, Status
from autoclave.judge.profiles import CompileError, Environment
from autoclave.judge.special import SpecialJudge
from autoclave.sandbox import Cell, Limits, Sandbox


@dataclass(frozen=True, slots=True)
class Judgement:
    """One test, judged."""

    outcome: Outcome
    status: Status
    message: str = ""


class Trial(ABC):
    """One program in its cell or cells, ready for the tests of one problem. The cells end with it, the last first."""

    compile_error: str | None = None
    """Reason for which the program cannot be run at all; then no test is judged."""
    order: Sequence[int] = ()
    """The tests that will be judged, in this order: those after the next one may be run ahead."""

    def __init__(self, *cells: AbstractContextManager[object]) -> None:
        self._cells = ExitStack()
        for cell in cells:
            self._cells.enter_context(cell)

    @abstractmethod
    def judge(self, index: int) -> Judgement:
        """Run test `index`. Raises SandboxFault: a cell died for reasons that are not the program's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cells.__exit__(kind, error, trace)


class TestKind(Protocol):
    """The tests of one problem. Expected answers stay here."""

    __test__ = False  # not a test class of pytest

    def num_tests(self) -> int:
        """Number of tests."""
        ...

    def input_lengths(self) -> Sequence[int]:
        """Length of the input of each test, for choosing the longest."""
        ...

    def start(self, sandbox: Sandbox, program: Program, limits: Limits) -> Trial:
        """Put `program` into cells with these limits. To be used in a `with` statement.

        Raises HostError: a requirement of the problem's profile or language is missing on this host. SandboxFault: no
        cell could be made.
        """
        ...


JudgeTest = Callable[[Cell, int, str], Judgement]
"""Judges test `index` in a cell, of a program with this text."""


class OneCellTrial(Trial):
    """A cell, and the function that judges a test in it."""

    def __init__(self, cell: Cell, program: Program, judge: JudgeTest, special: SpecialJudge | None = None) -> None:
        """`special` is closed together with the cell."""
        super().__init__(cell, *([closing(special)] if special else []))
        self.compile_error = cell.compile_error
        self._cell = cell
        self._judge = judge
        self._source = program.source

    def judge(self, index: int) -> Judgement:
        return self._judge(self._cell, index, self._source)


class RefusedTrial(Trial):
    """The trial of a program that does not compile."""

    def __init__(self, error: CompileError) -> None:
        super().__init__()
        self.compile_error = error.message

    def judge(self, index: int) -> Judgement:
        raise SandboxFault(f"test {index}: a program that compiled before does not compile now")


def start_in_one_cell(
    environment: Environment,
    sandbox: Sandbox,
    program: Program,
    limits: Limits,
    judge: JudgeTest,
    special: SpecialJudge | None = None,
) -> Trial:
    """Build `program` and put it into a cell of its own.

    Raises HostError: a requirement of the environment is missing on this host. SandboxFault: no cell could be made.
    """
    built = environment.build(sandbox, program)
    if isinstance(built, CompileError):
        return RefusedTrial(built)
    return OneCellTrial(sandbox.open(built.content, built.profile, limits, built.runner), program, judge, special)
