"""Test code that calls the program: check and program run in two cells, and the judge relays frames between them.

The two share nothing. They alternate strictly: after a frame of one side, the next must come from the other, and an
answer must belong to a request of the other side. The judge reads only the first byte of a frame, counts calls and
nesting, and enforces the limits of the side it waits for. A program that dies, exceeds a limit or violates this
protocol ends the check at once. The judge trusts the cell of the check: no code of the program runs in it.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import json
import re
import warnings
from dataclasses import replace
from enum import StrEnum
from types import CodeType

from autoclave.core import CheckTests, Ended, InputError, Outcome, Problem, Program, SandboxFault, Status
from autoclave.judge.kinds.interface import Judgement, Trial
from autoclave.judge.messages import exception_message, failure_of, reported_failure
from autoclave.judge.profiles import CANDIDATE, CHECK_HOST, Environment
from autoclave.judge.spare_cells import Held, LentCell, SpareCells
from autoclave.sandbox import Cell, Limits, Sandbox, Session

_CALL, _REQUEST, _ANSWER, _END = b"C", b"Q", b"A", b"E"
_NO_CHECKER = "lcb"
"""The default of problems, which has no effect on checks."""
_MAX_NESTING = 64
_MAX_REQUESTS = 2_000_000


class CheckKind:
    """One test: the check, in a cell of its own."""

    def __init__(self, problem: Problem, tests: CheckTests, environment: Environment, spare_cells: SpareCells) -> None:
        """Validate the check. Runs nothing.

        Raises InputError: a part of the check does not compile, or the problem has a checker.
        """
        if problem.checker != _NO_CHECKER:
            given = problem.checker if isinstance(problem.checker, str) else problem.checker.name
            raise InputError(
                f"problem {problem.id!r}: checker = {given!r}: a check decides by itself; leave the checker out"
            )
        for field in ("preamble", "source", "invocation"):
            _require_source(problem.id, field, getattr(tests, field))
        if not _runs_anything(f"{tests.source}\n{tests.invocation}"):
            raise InputError(
                f"problem {problem.id!r}: tests.invocation = {tests.invocation!r}: tests.source only defines, so "
                f"nothing would be tested; call them here, as in 'check({tests.entry_point})'"
            )
        self._problem_id = problem.id
        self._profile = environment.profile
        self._tests = tests
        self._spare_cells = spare_cells
        self._check = json.dumps(
            {
                "preamble": tests.preamble,
                "source": tests.source,
                "invocation": tests.invocation,
                "entry_point": tests.entry_point,
                "unknown_names": sorted(_unknown_names(tests)),
                "mutates_arguments": tests.mutates_arguments,
                "own_fields": _own_fields(tests),
            }
        ).encode("ascii")

    def num_tests(self) -> int:
        return 1

    def input_lengths(self) -> list[int]:
        return [len(self._tests.source)]

    def start(self, sandbox: Sandbox, program: Program, limits: Limits) -> CheckTrial:
        content = json.dumps({"preamble": self._tests.preamble, "program": program.source}).encode("ascii")
        held = Held(self._check, self._profile, limits, CHECK_HOST)
        with contextlib.ExitStack() as cells:
            host = cells.enter_context(self._spare_cells.take(sandbox, held))
            if host.cell.compile_error is not None:
                raise InputError(
                    f"problem {self._problem_id!r}: tests: the check does not compile: {host.cell.compile_error}"
                )
            candidate = sandbox.open(content, self._profile, limits, CANDIDATE)
            cells.pop_all()
        return CheckTrial(self._problem_id, host, candidate, program)


def _require_source(problem_id: str, field: str, source: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, field, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"problem {problem_id!r}: tests.{field}{line}: does not compile ({error})") from None


def _runs_anything(source: str) -> bool:
    """Return whether the source has a statement other than definitions, imports and strings."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    return any(
        not isinstance(statement, definitions)
        and not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in ast.parse(source).body
    )


def _unknown_names(tests: CheckTests) -> set[str]:
    """Return the names that a check uses but does not define: of builtins, the preamble, or the program."""
    used: set[str] = set()
    defined = {"candidate", tests.entry_point.rpartition(".")[2], "__annotations__"}  # the last is for `x: int = 1`
    for text in (tests.source, tests.invocation):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _collect_names(compile(text, "check", "exec", dont_inherit=True), used, defined)
    return used - defined


def _collect_names(code: CodeType, used: set[str], defined: set[str], *, is_module: bool = True) -> None:
    """Collect the global names that `code`, with its functions and classes, loads, and those that it binds."""
    for instruction in dis.get_instructions(code):
        operation = instruction.opname
        if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
            used.add(instruction.argval)
        elif operation == "STORE_GLOBAL" or (is_module and operation == "STORE_NAME"):
            defined.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _collect_names(constant, used, defined, is_module=False)


def _own_fields(tests: CheckTests) -> dict[str, list[str]]:
    """Return, by class of the preamble, the names that it annotates or its methods assign; under "", all other assigned
    names. A class attribute of another name is a constant.
    """
    if "class" not in tests.preamble:
        return {}
    finder = _FieldFinder()
    for text in (tests.preamble, tests.source, tests.invocation):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            finder.visit(ast.parse(text))
    return {name: sorted(fields) for name, fields in finder.fields.items()}


class _FieldFinder(ast.NodeVisitor):
    """Collects the names of fields from source text, by class."""

    def __init__(self) -> None:
        self.fields: dict[str, set[str]] = {"": set()}
        self._owner = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._owner = self._owner, node.name
        annotated = [
            part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        ]
        self.fields.setdefault(node.name, set()).update(
            ast.unparse(part.target)
            for part in annotated
            if not re.search(r"\b(ClassVar|Final)\b", ast.unparse(part.annotation))
        )
        self.generic_visit(node)
        self._owner = outer

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            target = ast.unparse(node.value)
            if target != "cls" and not target.endswith((")", "__class__")) and target not in self.fields:
                self.fields[self._owner].add(node.attr)
        self.generic_visit(node)


class CheckTrial(Trial):
    """A program and the check of its problem, each in its cell."""

    def __init__(self, problem_id: str, host: LentCell, candidate: Cell, program: Program) -> None:
        super().__init__(host, candidate)
        self.compile_error = candidate.compile_error
        self._problem_id = problem_id
        self._host = host
        self._candidate = candidate
        self._source = program.source

    def judge(self, index: int) -> Judgement:
        """Run the check.

        Raises InputError: the check fails before it uses the program. SandboxFault: a cell died for reasons that are
        not the program's.
        """
        with contextlib.ExitStack() as sessions:
            self._host.is_as_before = False
            host = self._host.cell.session()
            sessions.callback(self._end_check, host)
            candidate = self._candidate.session()
            sessions.callback(candidate.end)
            relay = _Relay(host, candidate)
            stop = relay.run()
            return self._judged(relay, stop, _ended(candidate, stop), host)

    def _end_check(self, host: Session) -> None:
        """End the check. A cell whose test exceeded a limit is not reused."""
        self._host.is_as_before = host.end().ended in (Ended.EXITED, Ended.SIGNALLED)

    def _judged(self, relay: _Relay, stop: _Stop, outcome: Outcome, host: Session) -> Judgement:
        """Return the judgement. A failure of the program precedes the report of the check."""
        failure = failure_of(outcome, self._source)
        if failure:
            return Judgement(outcome, *failure)
        if stop is _Stop.PROGRAM_ENDED:
            return Judgement(outcome, Status.RUNTIME_ERROR, "it ended before the check did")
        if stop is _Stop.RULES_BROKEN:
            return Judgement(outcome, Status.RUNTIME_ERROR, "it broke the rules of the conversation with the check")
        of_check = host.close()
        failure = failure_of(of_check, "")
        if failure or stop is _Stop.CHECK_DIED:
            return self._judged_dead_check(relay, of_check, failure)
        outcome_of_check, account = relay.end
        if not relay.has_program_replied:
            what = exception_message(account, "") or "no exception"
            raise InputError(f"problem {self._problem_id!r}: tests: the check ends before it uses the program ({what})")
        return Judgement(outcome, *self._verdict(outcome_of_check, account, relay))

    def _judged_dead_check(self, relay: _Relay, outcome: Outcome, failure: tuple[Status, str] | None) -> Judgement:
        """Attribute the death of a check to the program if the program has replied, else to the problem or the cell."""
        status, what = failure or (Status.RUNTIME_ERROR, "no exit code")
        if relay.has_program_replied:
            return Judgement(outcome, status, f"{what}, in the check of what it returned")
        if outcome.ended in (Ended.EXITED, Ended.SIGNALLED):
            raise SandboxFault(f"the cell of the check died ({what})")
        raise InputError(f"problem {self._problem_id!r}: tests: the check meets the {what} before it uses the program")

    def _verdict(self, outcome_of_check: str, account: str, relay: _Relay) -> tuple[Status, str]:
        match outcome_of_check:
            case "passed" if relay.num_calls and not relay.num_open:
                return Status.ACCEPTED, ""
            case "passed":
                return Status.WRONG_ANSWER, "the check ended without a call of the program"
            case "program":
                return reported_failure(account, self._source)
            case "violation":
                return Status.RUNTIME_ERROR, "it answered the check with malformed data"
            case "refused":
                return Status.RUNTIME_ERROR, f"it answered the check with what cannot be carried: {account}"
            case _:
                return _failure_of_check(account)


def _ended(candidate: Session, stop: _Stop) -> Outcome:
    """Return the outcome of the program. One that still runs counts as exited with 0."""
    outcome = candidate.end()
    if stop is not _Stop.PROGRAM_ENDED and outcome.ended in (Ended.EXITED, Ended.SIGNALLED):
        return replace(outcome, ended=Ended.EXITED, exit_code=0, signal=None)
    return outcome


def _failure_of_check(account: str) -> tuple[Status, str]:
    status, what = reported_failure(account, "")
    if status is not Status.RUNTIME_ERROR:
        return status, f"{what}, in the check of what it returned"
    return Status.WRONG_ANSWER, "the check failed" if what == "AssertionError" else f"the check failed with {what}"


class _Stop(StrEnum):
    """Reason for which the relay stopped."""

    CHECK_ENDED = "check ended"
    """Its last frame has arrived."""
    CHECK_DIED = "check died"
    """Its cell closed the channel without a last frame."""
    PROGRAM_ENDED = "program ended"
    """Its cell closed the channel."""
    RULES_BROKEN = "rules broken"
    """The program violated the protocol."""


class _Relay:
    """Relays frames between a check and a program, which alternate strictly."""

    def __init__(self, host: Session, candidate: Session) -> None:
        self._host = host
        self._candidate = candidate
        self._open: list[bool] = []
        self._num_requests = 0
        self.num_calls = 0
        self.has_program_replied = False
        self.end: tuple[str, str] = ("", "")

    @property
    def num_open(self) -> int:
        """Requests without an answer."""
        return len(self._open)

    def run(self) -> _Stop:
        """Relay frames until one side ends or the program violates the protocol."""
        while True:
            frame = self._host.receive()
            if frame is None:
                return _Stop.CHECK_DIED
            if frame[:1] == _END:
                self.end = _end_in(frame)
                return _Stop.CHECK_ENDED
            if not self._is_in_order(frame, from_host=True):
                return _Stop.RULES_BROKEN  # too many requests, which only a program can cause
            self._candidate.send(frame)
            frame = self._candidate.receive()
            if frame is None:
                return _Stop.PROGRAM_ENDED
            self.has_program_replied = True
            if not self._is_in_order(frame, from_host=False):
                return _Stop.RULES_BROKEN
            self._host.send(frame)

    def _is_in_order(self, frame: bytes, *, from_host: bool) -> bool:
        """Return whether the frame is a request within the limits, or answers the last request of the other side."""
        kind = frame[:1]
        if kind == _ANSWER:
            return bool(self._open) and self._open.pop() is not from_host
        self._open.append(from_host)
        self._num_requests += 1
        self.num_calls += from_host and kind == _CALL
        return kind in (_CALL, _REQUEST) and len(self._open) <= _MAX_NESTING and self._num_requests <= _MAX_REQUESTS


def _end_in(frame: bytes) -> tuple[str, str]:
    """Return the outcome of the check and the account of the exception that ended it."""
    outcome, account = json.loads(frame[1:])
    return str(outcome), str(account)
