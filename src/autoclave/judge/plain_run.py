"""Run programs without tests: `run_program` once, `PlainRunner` many times."""

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, cast

from autoclave.config.levels import Level
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Closing, Ended, HostError, InputError, Outcome, Program, SandboxFault
from autoclave.judge.environments import Environments
from autoclave.judge.gate import Gate
from autoclave.judge.limits import RUNS_ALONE, deciding_limits, sandbox_limits
from autoclave.judge.plain_data import NotPlainError, decode, encode
from autoclave.judge.profiles import FREE_RUN, NOTEBOOK, Built, CompileError
from autoclave.judge.toolchain import find_toolchain
from autoclave.sandbox import Limits, open_sandbox

_ATTEMPTS = 3
_MAX_VALUE_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Order to run a program. Limits of None are those of the settings.

    `files` are written into its working folder first, by path; `fetch` names files to return.
    """

    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    fetch: Sequence[str] = ()
    wants_value: bool = False
    profile: str = "plain"
    time_limit_s: float = 6.0
    wall_limit_s: float | None = None
    memory_limit_mb: int | None = None
    compile_limit_s: float | None = None
    decides: bool = False
    """A verdict depends on it: a run that other runs may have changed is repeated alone. It has no own wall limit."""


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """Output of a notebook cell, its last value as text, and name, text and traceback of what it raised."""

    stdout: str
    stderr: str
    value: str | None
    error: tuple[str, str, list[str]] | None


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run. All fields but the outcome come from the program's own process.

    `value` is the repr of the last expression, without `value_cut` characters; None if the program does not end with an
    expression, or did not finish.
    """

    outcome: Outcome
    compile_error: CompileError | None = None
    value: str | None = None
    value_cut: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    cells: list[NotebookCell] = field(default_factory=list[NotebookCell])


class PlainRunner(Closing):
    """Runs programs in cells of one sandbox. Safe to use from several threads."""

    def __init__(self, sandbox_config: SandboxConfig, judge_config: JudgeConfig | None = None) -> None:
        """Start the sandbox.

        Raises:
            IsolationError: this host cannot isolate as the settings require.
        """
        self._config = sandbox_config
        self._judge_config = judge_config or JudgeConfig()
        self._environments = Environments(self._judge_config)
        self._sandbox = open_sandbox(sandbox_config)
        self._gate = Gate()

    @property
    def level(self) -> Level:
        """Isolation that every program runs under."""
        return self._sandbox.level

    def run(self, program: Program, order: RunOrder) -> RunResult:
        """Run a program. A source that does not compile exits with 1 and prints the error on standard error.

        Raises:
            InputError: the profile or the language is unknown, or the order cannot be carried out.
            HostError: a requirement of the profile or the language is missing on this host.
            SandboxFault: the sandbox failed, also on fresh cells.
        """
        needs_account = bool(order.files or order.fetch or order.wants_value)
        if needs_account and program.language != "python":
            raise InputError(f"language = {program.language!r}: files and values are for Python programs")
        self._require_files(order)
        environment = self._environments_of(order.compile_limit_s).named(program.language, order.profile, "stdin")

        def attempt(limits: Limits) -> RunResult:
            built = environment.build(self._sandbox, program)
            if isinstance(built, CompileError):
                return _refused(built)
            if needs_account:
                built = replace(built, runner=FREE_RUN)
            return self._ran(built, order, needs_account, limits)

        if not order.decides:
            return _retried(lambda: attempt(self._limits(order)))
        limits = deciding_limits(self._config, order.time_limit_s, order.memory_limit_mb)
        with self._gate.shared():
            result = _retried(lambda: attempt(limits.first))
        for _ in range(RUNS_ALONE if limits.is_borderline(result.outcome) else 0):
            with self._gate.alone():
                result = _retried(lambda: attempt(limits.exact))
            if not limits.is_starved(result.outcome):
                break
        return result

    def run_notebook(self, cells: Sequence[str], order: RunOrder) -> RunResult:
        """Run pieces of Python one after the other in one process, also after one has failed.

        Raises:
            InputError: the profile is unknown, or the order cannot be carried out.
            SandboxFault: the sandbox failed, also on fresh cells.
        """
        self._require_files(order)
        profile = self._environments.named("python", order.profile, "stdin").profile
        built = Built(json.dumps(list(cells)).encode("ascii"), profile, NOTEBOOK)
        return _retried(lambda: self._ran(built, order, True, self._limits(order)))

    def cpp_version(self) -> str | None:
        """Return the version of the C++ compiler; None if this host has none. Runs the compiler the first time."""
        try:
            found = re.search(r"\b\d+\.\d+\.\d+\b", find_toolchain(self._judge_config.cpp.compiler).version)
        except HostError:
            return None
        return found[0] if found else "0.0.0"

    def close(self) -> None:
        """Free all processes."""
        self._sandbox.close()
        self._environments.close()

    def _environments_of(self, compile_limit_s: float | None) -> Environments:
        """Return the environments for a limit of compile time; only those for that of the settings are kept."""
        if compile_limit_s is None or compile_limit_s >= self._judge_config.cpp.time_limit_s:
            return self._environments
        cpp = self._judge_config.cpp.model_copy(update={"time_limit_s": compile_limit_s})
        return Environments(self._judge_config.model_copy(update={"cpp": cpp}))

    def _require_files(self, order: RunOrder) -> None:
        for path in (*order.files, *order.fetch):
            parts = PurePosixPath(path).parts
            if not parts or path.startswith("/") or ".." in parts or "\0" in path or path.endswith("/"):
                raise InputError(f"files: {path[:100]!r}: must be the path of a file in the working folder")
        size = sum(map(len, order.files.values()))
        if size > self._config.disk_limit_mb << 19:
            raise InputError(f"files: have {size} bytes; at most {self._config.disk_limit_mb << 19} are allowed")

    def _ran(self, built: Built, order: RunOrder, needs_account: bool, limits: Limits) -> RunResult:
        with self._sandbox.open(built.content, built.profile, limits, built.runner) as cell:
            if cell.compile_error is not None:
                return _refused(CompileError(cell.compile_error))
            if not needs_account:
                return RunResult(cell.run(order.stdin))
            request = {
                "files": dict(order.files),
                "fetch": list(order.fetch),
                "wants_value": order.wants_value,
                "limit": limits.output_bytes // 2,
            }
            return _result(*cell.exchange(encode(request), order.stdin), order.fetch)

    def _limits(self, order: RunOrder) -> Limits:
        limits = sandbox_limits(self._config, order.time_limit_s, order.memory_limit_mb)
        return limits if order.wall_limit_s is None else replace(limits, wall_s=order.wall_limit_s)


def run_program(
    sandbox_config: SandboxConfig,
    program: Program,
    stdin: bytes = b"",
    *,
    profile: str = "plain",
    time_limit_s: float = 6.0,
    judge_config: JudgeConfig | None = None,
) -> Outcome:
    """Run `program` sealed with `stdin`. A source that does not compile exits with 1 and its error on standard error.

    `judge_config` has further profiles, and the settings of compilers.

    Raises:
        InputError: the profile or the language is unknown.
        HostError: a requirement of the profile or the language is missing on this host.
        IsolationError: this host cannot isolate as the settings require.
        SandboxFault: the sandbox failed, also on fresh cells.
    """
    with PlainRunner(sandbox_config, judge_config) as runner:
        return runner.run(program, RunOrder(stdin, profile=profile, time_limit_s=time_limit_s)).outcome


def _retried(attempt: Callable[[], RunResult]) -> RunResult:
    for number in range(1, _ATTEMPTS + 1):
        try:
            return attempt()
        except SandboxFault:
            if number == _ATTEMPTS:
                raise
    raise AssertionError("not reached")


def _refused(error: CompileError) -> RunResult:
    message = error.message
    outcome = Outcome(Ended.EXITED, 1, None, b"", f"{message}\n".encode(), 0, 0, 0.0, 0.0, 0.0, message)
    return RunResult(outcome, error)


def _result(outcome: Outcome, account: bytes | None, fetch: Sequence[str]) -> RunResult:
    """Return the result in the account of a cell; malformed parts are left out."""
    reported: Any = None
    if account is not None:
        with contextlib.suppress(NotPlainError):
            reported = decode(account)
    if type(reported) is not dict:
        return RunResult(outcome)
    plain = cast("dict[str, Any]", reported)
    value, length = plain.get("value"), plain.get("value_length")
    value = value[:_MAX_VALUE_CHARS] if type(value) is str else None
    cut = max(length - len(value), 0) if value is not None and type(length) is int and length < 1 << 40 else 0
    given: Any = plain.get("files")
    files = cast("dict[Any, Any]", given) if type(given) is dict else {}
    kept = {path: files[path] for path in fetch if type(files.get(path)) is bytes}
    return RunResult(outcome, None, value, cut, kept, _cells(plain.get("cells")))


def _cells(reported: Any) -> list[NotebookCell]:
    """Return the cells of a notebook; an empty list if one is malformed."""
    cells: list[NotebookCell] = []
    for cell in cast("list[Any]", reported) if type(reported) is list else []:
        match cell:
            case {"stdout": str(out), "stderr": str(err), "value": str() | None as value, "error": None}:
                cells.append(NotebookCell(out, err, value, None))
            case {"stdout": str(out), "stderr": str(err), "value": None, "error": [str(name), str(text), _]}:
                lines: Any = cell["error"][2]
                whole = cast("list[Any]", lines) if type(lines) is list else []
                trace: list[str] = [line for line in whole if type(line) is str]
                cells.append(NotebookCell(out, err, None, (name, text, trace)))
            case _:
                return []
    return cells
