"""The custom checker of a problem, in a cell of its own.

The hostile text goes from the program's cell into this cell unparsed; one word comes back. A checker that fails before
it receives a result is the problem's fault, and there is no verdict; one that fails on a result does not accept it.
"""

from dataclasses import replace
from typing import Any

from autoclave.core import CustomChecker, Ended, InputError, Outcome, SandboxFault, Status
from autoclave.judge.checkers import Rule
from autoclave.judge.messages import failure_of
from autoclave.judge.plain_data import encode
from autoclave.judge.profiles import CUSTOM_CHECKER, PROFILES
from autoclave.sandbox import Cell, Limits, Sandbox, Session

_LEAST_MEMORY_MB = 256
"""A checker holds input, output and expected text, however small the problem's memory limit."""
_WALL_FACTOR = 10
"""A checker is stopped by its CPU time; the wall limit must not end it on a busy machine."""


def roomy(limits: Limits, least_memory_mb: int = _LEAST_MEMORY_MB) -> Limits:
    """Return the limits of a checker's cell: the CPU time of the program's, with ample memory and wall time."""
    return replace(limits, memory_mb=max(limits.memory_mb, least_memory_mb), wall_s=_WALL_FACTOR * limits.cpu_s + 1)


_READY = b"ready"
_REFUSALS = {b"false": "the checker does not accept the result"}


class SpecialJudge:
    """One checker. Its cell is opened for the first result and serves one trial; each result has its own process."""

    def __init__(self, sandbox: Sandbox, checker: CustomChecker, problem_id: str, limits: Limits) -> None:
        self._sandbox = sandbox
        self._source = checker.source
        self._problem_id = problem_id
        self._limits = roomy(limits)
        self._cell: Cell | None = None

    @staticmethod
    def of(checker: Rule | CustomChecker, sandbox: Sandbox, problem_id: str, limits: Limits) -> "SpecialJudge | None":
        """Return the judge of a custom checker; None for a built-in rule."""
        return SpecialJudge(sandbox, checker, problem_id, limits) if isinstance(checker, CustomChecker) else None

    def judge(self, kind: str, given: Any, expected: Any, answer: bytes) -> tuple[Status, str]:
        """Result of `check` on `answer`: text as it was printed (`stdin`), or an encoded result (`call`).

        Raises InputError: the checker fails without a result; the message names the problem. SandboxFault: its cell
        failed, or used up its wall time.
        """
        session = self._open_cell().session()
        try:
            is_ready = session.receive() == _READY
            word = _request(session, encode({"kind": kind, "input": given, "expected": expected}), answer, is_ready)
        finally:
            outcome = session.close()
        refuse_interference(outcome, "a checker")
        if not is_ready:
            raise self._refusal(f"fails before it has seen a result: {self._failure_of(outcome)}")
        if outcome.ended is not Ended.EXITED or outcome.exit_code != 0 or word is None:
            return Status.WRONG_ANSWER, f"the checker fails on the result: {self._failure_of(outcome)}"
        if word == b"true":
            return Status.ACCEPTED, ""
        return Status.WRONG_ANSWER, _REFUSALS.get(word, "the checker returns neither True nor False")

    def close(self) -> None:
        if self._cell is not None:
            self._cell.close()
            self._cell = None

    def _open_cell(self) -> Cell:
        if self._cell is None:
            content = self._source.encode("utf-8", "surrogatepass")
            self._cell = self._sandbox.open(content, PROFILES["plain"], self._limits, CUSTOM_CHECKER)
        if self._cell.compile_error is not None:
            raise self._refusal(f"does not compile: {self._cell.compile_error}")
        return self._cell

    def _failure_of(self, outcome: Outcome) -> str:
        _, message = failure_of(outcome, self._source) or (None, "it ended early")
        return message

    def _refusal(self, what: str) -> InputError:
        return InputError(f"problem {self._problem_id!r}: checker.source {what}")


def _request(session: Session, question: bytes, answer: bytes, is_ready: bool) -> bytes | None:
    if not is_ready:
        return None
    session.send(question)
    session.send(answer)
    return session.receive()


def refuse_interference(outcome: Outcome, subject: str) -> None:
    """Raise for a checker that used up its wall time or was killed: that shows a fault of the machine.

    Raises SandboxFault: `subject` used up its wall time or was killed.
    """
    if outcome.ended is Ended.WALL_TIME:
        raise SandboxFault(f"{subject} used up its wall time")
    if outcome.ended is Ended.SIGNALLED and outcome.signal == 9:
        raise SandboxFault(f"{subject} was killed")
