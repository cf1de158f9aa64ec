"""Protocol of a kind of tests: trials, each of one program, whose tests are judged one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from autoclave.core import Outcome, Program, Status
from autoclave.sandbox import Limits, Sandbox


@dataclass(frozen=True, slots=True)
class Judgement:
    """One test, judged."""

    outcome: Outcome
    status: Status
    message: str = ""


class Trial(Protocol):
    """One program in its cell or cells, ready for the tests of one problem."""

    compile_error: str | None
    """Reason for which the program cannot be run at all; then no test is judged."""

    def judge(self, index: int) -> Judgement:
        """Run test `index`.

        Raises:
            SandboxFault: a cell died for reasons that are not the program's.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


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

        Raises:
            HostError: the host lacks what the problem's profile or language needs.
            SandboxFault: no cell could be made.
        """
        ...
