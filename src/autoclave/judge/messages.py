"""Status and message of a run that ended badly. Messages are the judge's own words: a program's texts may echo a test.

What a cell tells of itself (exception and line) is used only to word a failure, and only known names pass.
"""

from __future__ import annotations

import builtins
import re
import signal

from autoclave.core import Ended, Outcome, Status

_EXCEPTIONS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_ACCOUNT = re.compile(r"\S+ (?P<name>[A-Za-z]+) (?P<line>[0-9]{1,7})")

_LIMIT_STATUS = {
    Ended.CPU_TIME: (Status.TIME_LIMIT, "CPU time limit"),
    Ended.WALL_TIME: (Status.TIME_LIMIT, "wall time limit (it slept or waited)"),
    Ended.MEMORY: (Status.MEMORY_LIMIT, "memory limit"),
    Ended.OUTPUT: (Status.OUTPUT_LIMIT, "output limit"),
    Ended.PROCESSES: (Status.RUNTIME_ERROR, "process limit"),
    Ended.DISK: (Status.RUNTIME_ERROR, "disk limit"),
}


def failure_of(outcome: Outcome, num_lines: int) -> tuple[Status, str] | None:
    """Why the run failed whatever it printed, or None when it exited with 0. `num_lines` is the program's length."""
    if outcome.ended in _LIMIT_STATUS:
        return _LIMIT_STATUS[outcome.ended]
    if outcome.ended is Ended.SIGNALLED:
        return Status.RUNTIME_ERROR, f"killed by {_signal_name(outcome.signal)}"
    if outcome.exit_code != 0:
        return Status.RUNTIME_ERROR, exception_message(outcome.detail, num_lines) or f"exit code {outcome.exit_code}"
    return None


def exception_message(account: str, num_lines: int) -> str:
    """`ValueError (line 3)` from an account, or nothing when it has no exception."""
    told = _ACCOUNT.fullmatch(account)
    if not told:
        return ""
    name = told["name"] if told["name"] in _EXCEPTIONS else "an exception"
    line = int(told["line"])
    return f"{name} (line {line})" if 0 < line <= num_lines else name


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"
