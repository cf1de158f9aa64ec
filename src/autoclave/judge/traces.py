"""Trace one program on one test, in a run and a cell of its own, apart from verdicts.

The account of the cell is hostile data: it must be bounded, of known shape, with names from the program's text and
values of primitive type, else the trace has no values.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from autoclave.core.errors import InputError, SandboxFault
from autoclave.core.outcome import Ended, Outcome
from autoclave.core.problem import CallTests, Problem, StdinTests
from autoclave.core.trace import MAIN_PROGRAM, Trace, TraceStatus, literal
from autoclave.judge.evaluation import PreparedJob
from autoclave.judge.gate import Gate
from autoclave.judge.interface import JudgeJob
from autoclave.judge.kinds import TestKind
from autoclave.judge.kinds.call import CallKind
from autoclave.judge.limits import ProblemLimits
from autoclave.judge.messages import failure_of
from autoclave.judge.plain_data import NotPlainError, decode
from autoclave.judge.profiles import CALL_TRACE, SCRIPT_TRACE
from autoclave.judge.traced_values import MAX_VARIABLES, is_small, primitives, with_lists
from autoclave.sandbox import Cell, Limits, Profile, Sandbox

MAX_RESULT_LENGTH = 10_000
"""Characters of a result; an output is cut there, a returned value left out."""
_MAX_ACCOUNT_BYTES = 1 << 21
_MAX_LEFT_OUT = 1 << 32
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class PreparedTrace:
    """A trace that passed validation."""

    job: JudgeJob
    index: int
    style: "_Style"
    profile: Profile
    limits: ProblemLimits

    def run(self, shared: "SharedCell", gate: Gate) -> Trace:
        """The trace. A run too close to the time limit is repeated with no neighbours, as for a verdict.

        Raises SandboxFault: a cell died for reasons that are not the program's.
        """
        with gate.shared():
            ran = self._observe(shared.of(self))
        if not isinstance(ran, str) and self.limits.is_borderline(ran[0]):
            with gate.alone(), self.open(shared.sandbox, self.limits.exact) as fresh:
                ran = self._observe(fresh)
        return self.no_values(ran) if isinstance(ran, str) else self._trace(*ran)

    def open(self, sandbox: Sandbox, limits: Limits) -> Cell:
        """A cell for this and other runs of the program.

        Raises SandboxFault: no cell could be made, for reasons that are not the program's.
        """
        content = self.job.program.source.encode("utf-8", "surrogatepass")
        return sandbox.open(content, self.profile, limits, self.style.runner)

    def _observe(self, cell: Cell) -> str | tuple[Outcome, bytes | None]:
        """Return outcome and account of one run, or the compile error."""
        return self.style.observe(cell, self.index) if cell.compile_error is None else cell.compile_error

    def _trace(self, outcome: Outcome, account: bytes | None) -> Trace:
        source = self.job.program.source
        failure = failure_of(outcome, source)
        message = failure[1] if failure else ""
        if failure and outcome.ended is not Ended.EXITED:
            return self.no_values(message)
        if account is None:
            return self.no_values(message or "it ended before its variables could be told")
        reported = _read(account, source)
        if reported is None:
            return self.no_values("its account is malformed")
        result, is_whole = self.style.result(reported, outcome)
        return replace(
            self.no_values(message),
            status=TraceStatus.RAISED if failure else TraceStatus.FINISHED,
            variables=reported.variables,
            lists=reported.lists,
            left_out=reported.left_out,
            result=result,
            is_result_whole=is_whole,
        )

    def no_values(self, message: str) -> Trace:
        """Return the trace of a run without an account, with the reason."""
        job, status = self.job, TraceStatus.NO_VALUES
        return Trace(
            problem_id=job.problem.id,
            id=job.id,
            test=self.index,
            status=status,
            entry=self.style.entry,
            message=message,
        )


class SharedCell:
    """The cell of several runs of one program, opened for the first. Each run is a process of its own there."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._cell: Cell | None = None

    def of(self, prepared: PreparedTrace) -> Cell:
        """The cell; raises as `PreparedTrace.open` does."""
        if self._cell is None:
            self._cell = prepared.open(self.sandbox, prepared.limits.first)
        return self._cell

    def abandon(self, fault: SandboxFault) -> None:
        """Discard the cell and its zygote after a fault; the next run gets a new one."""
        self.__exit__(type(fault), fault, fault.__traceback__)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        cell, self._cell = self._cell, None
        if cell:
            cell.__exit__(kind, error, trace)


def prepare_trace(prepared: PreparedJob, index: int, profiles: Mapping[str, Profile]) -> PreparedTrace:
    """The trace of a prepared job's program on test `index`; `profiles` are those of the judge.

    Raises InputError: the job cannot be traced; the message names the problem and the field.
    """
    problem, num_tests = prepared.job.problem, prepared.kind.num_tests()
    if not 0 <= index < num_tests:
        raise InputError(f"problem {problem.id!r}: test {index}: no such test; there are {num_tests}, from 0")
    if problem.language != "python":
        raise InputError(f"problem {problem.id!r}: language = {problem.language!r}: only Python programs are traced")
    style = _style_of(problem, prepared.kind)
    return PreparedTrace(prepared.job, index, style, profiles[problem.profile], prepared.limits)


@dataclass(frozen=True, slots=True)
class _Account:
    """Parsed and validated report of a cell."""

    variables: dict[str, str]
    lists: dict[str, str]
    left_out: int
    result: tuple[Any, ...]


class _MainProgram:
    """Run as a script on the test's standard input."""

    runner = SCRIPT_TRACE
    entry: str = MAIN_PROGRAM

    def __init__(self, tests: StdinTests) -> None:
        self._cases = tests.cases

    def observe(self, cell: Cell, index: int) -> tuple[Outcome, bytes | None]:
        return cell.exchange(None, self._cases[index].input.encode("utf-8", "surrogatepass"))

    def result(self, reported: _Account, outcome: Outcome) -> tuple[str | None, bool]:
        text = outcome.stdout.decode("utf-8", "replace")
        return text[:MAX_RESULT_LENGTH], len(text) <= MAX_RESULT_LENGTH


class _Call:
    """The entry point called once with the test's arguments."""

    runner = CALL_TRACE

    def __init__(self, tests: CallTests, kind: CallKind) -> None:
        self.entry = tests.entry_point
        self._kind = kind

    def observe(self, cell: Cell, index: int) -> tuple[Outcome, bytes | None]:
        return cell.exchange(self._kind.request(index))

    def result(self, reported: _Account, outcome: Outcome) -> tuple[str | None, bool]:
        if len(reported.result) != 1:
            return None, False
        try:
            text = literal(reported.result[0])
        except (ValueError, RecursionError):  # an integer of very many digits, or nested too deep
            return None, False
        return (text, True) if len(text) <= MAX_RESULT_LENGTH else (None, False)


_Style = _MainProgram | _Call
"""One way to run and observe a program, and to read its result."""


def is_traceable(problem: Problem) -> bool:
    """Return whether programs for `problem` can be traced."""
    return isinstance(problem.tests, StdinTests | CallTests) and problem.language == "python"


def _style_of(problem: Problem, kind: TestKind) -> _Style:
    tests = problem.tests
    if isinstance(tests, StdinTests):
        return _MainProgram(tests)
    if isinstance(tests, CallTests) and isinstance(kind, CallKind):
        return _Call(tests, kind)
    raise InputError(
        f"problem {problem.id!r}: tests.kind = {tests.kind!r}: only programs of stdin and call tests are traced"
    )


def _read(account: bytes, source: str) -> _Account | None:
    """Return the account, or None if it is malformed. Drops names that are not in the program's text."""
    if len(account) > _MAX_ACCOUNT_BYTES:
        return None
    try:
        reported: Any = decode(account)
    except NotPlainError:
        return None
    match reported:
        case {"variables": list(), "left_out": int()}:
            given = cast("dict[str, Any]", reported)
        case _:
            return None
    pairs: list[Any] = given["variables"]
    if len(pairs) > MAX_VARIABLES or not all(map(_is_variable, pairs)):
        return None
    lists: list[Any] = given.get("lists", [])
    if not isinstance(given.get("lists", []), list) or len(lists) > MAX_VARIABLES or not all(map(_is_list, lists)):
        return None
    left_out, result = given["left_out"], given.get("result", [])
    if type(left_out) is not int or not 0 <= left_out <= _MAX_LEFT_OUT or type(result) is not list:
        return None
    words = {unicodedata.normalize("NFKC", word) for word in _WORD.findall(source)}
    variables, of_lists = (
        {name: literal(value) for name, value in each if words.issuperset(name.split(".", 1))}
        for each in (pairs, lists)
    )
    return _Account(variables, of_lists, left_out, tuple(cast("list[Any]", result)))


def _is_variable(pair: Any) -> bool:
    match pair:
        case [str(name), value]:
            return bool(primitives({name: value})) and is_small(value)
        case _:
            return False


def _is_list(pair: Any) -> bool:
    match pair:
        case [str(name), value]:
            return bool(with_lists({name: value})) and not primitives({name: value})
        case _:
            return False
