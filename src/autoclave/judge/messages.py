"""Status and message of a run that failed. Messages hold no text of the program, which may echo a test.

The account of a cell (exception and line) only words a failure, and only known names pass.
"""

import builtins
import os
import re
import signal

from autoclave.core import Ended, Outcome, Status
from autoclave.core.outcome import LIMIT_OF_ERRNO, LIMITS, limit_named

_EXCEPTIONS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_ACCOUNT = re.compile(r"\S+ (?P<name>[A-Za-z]+) (?P<line>[0-9]{1,7})(?: (?P<module>.*))?", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_STATEMENT, _EARLIER = r"(?:^|[;:])[ \t]*", r"(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*"

_BROKEN_RUNNER = 70
"""Exit code of a test whose runner raises. A program can cause that, or exit with 70 itself."""
_BROKEN_OR_OWN = " (its own, or it broke the code that runs it)"
_STANDARD_EXCEPTIONS = re.compile(
    r"std::(exception|bad_(alloc|array_new_length|cast|exception|function_call|optional_access|typeid|variant_access"
    r"|weak_ptr)|(domain|future|length|logic|overflow|range|regex|runtime|system|underflow)_error|invalid_argument"
    r"|out_of_range)"
)
_TERMINATED = re.compile(
    rb"^terminate called after throwing an instance of '([^'\n]*)'$(?:\n  what\(\):  (.*)$)?", re.MULTILINE
)
_TAIL_BYTES = 1 << 16
_NO_MEMORY = ("std::bad_alloc", "std::bad_array_new_length")


def failure_of(outcome: Outcome, source: str) -> tuple[Status, str] | None:
    """Return the failure of a run, or None when it exited with 0. Without the program's `source`, the message names
    neither lines nor modules.
    """
    if limit := outcome.ended.limit:
        return limit.failure
    if outcome.ended is Ended.SIGNALLED and outcome.signal == signal.SIGABRT:
        return _abortion(outcome.stderr)
    if outcome.ended is Ended.SIGNALLED:
        return Status.RUNTIME_ERROR, f"killed by {_signal_name(outcome.signal)}"
    if outcome.exit_code != 0:
        own = _BROKEN_OR_OWN if outcome.exit_code == _BROKEN_RUNNER else ""
        return Status.RUNTIME_ERROR, exception_message(outcome.detail, source) or f"exit code {outcome.exit_code}{own}"
    return None


def reported_failure(account: str, source: str) -> tuple[Status, str]:
    """Return status and message of an exception that ended a check: the limit in its account, or its name.

    Raises SandboxFault: the account names an unknown limit.
    """
    if ended := limit_named(account):
        return LIMITS[ended].failure
    return Status.RUNTIME_ERROR, exception_message(account, source) or "an exception"


def exception_message(account: str, source: str) -> str:
    """Return `ValueError (line 3)` or `ModuleNotFoundError: numpy (line 1)` from an account, or an empty string."""
    reported = _ACCOUNT.fullmatch(account)
    if not reported:
        return ""
    name = reported["name"] if reported["name"] in _EXCEPTIONS else "an exception"
    if name == "ModuleNotFoundError" and _imports(source, reported["module"] or ""):
        name += f": {reported['module']}"
    line, num_lines = int(reported["line"]), source.count("\n") + 1 if source else 0
    return f"{name} (line {line})" if 0 < line <= num_lines else name


def _imports(source: str, module: str) -> bool:
    """Return whether the program's source imports `module`. Any other text could come from a test."""
    if not _MODULE.fullmatch(module):
        return False
    wanted = rf"{_STATEMENT}(?:from[ \t]+|import[ \t]+{_EARLIER}){re.escape(module)}\b"
    return re.search(wanted, source, re.MULTILINE) is not None


def _abortion(stderr: bytes) -> tuple[Status, str]:
    """Return status and message of a program that aborts, such as C++ by an uncaught exception."""
    reported = _TERMINATED.findall(stderr[-_TAIL_BYTES:])
    if not reported:
        return Status.RUNTIME_ERROR, "killed by SIGABRT"
    name, what = (part.decode("ascii", "replace") for part in reported[-1])
    shown = name if _STANDARD_EXCEPTIONS.fullmatch(name) else "exception"
    limits = [ended for number, ended in LIMIT_OF_ERRNO.items() if os.strerror(number) in what]
    for ended in [Ended.MEMORY] if name in _NO_MEMORY else limits:
        return LIMITS[ended].status, f"{LIMITS[ended].message} ({shown})"
    return Status.RUNTIME_ERROR, f"uncaught {shown}"


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
