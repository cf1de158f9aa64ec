"""Make the `Outcome` of a test from the report of its first process and the observations of the judge."""

import os
import signal
import struct
import threading
from dataclasses import dataclass

from autoclave.core import Ended, ExhaustedFault, Outcome, SandboxFault
from autoclave.core.outcome import limit_named
from autoclave.sandbox.interface import Limits
from autoclave.sandbox.launch import Meter, TestUsage
from autoclave.sandbox.streams import Printed

_REPORT = struct.Struct("<idddq")
_ACCOUNT_BYTES = 256
REPORT_BYTES = _REPORT.size + _ACCOUNT_BYTES
"""Wait status, user, system and wall seconds, peak memory in KiB, and the account; see `guest/loops.py`."""
_SETTING_UP = "setting up"


class Used(threading.local):
    """CPU seconds of all tests that ended in a thread."""

    cpu_s = 0.0


used_by_thread = Used()


@dataclass(slots=True)
class Observed:
    """Observations of a test while it ran."""

    ended_by: Ended | None = None
    """The limit for which it was stopped."""
    is_cut_short: bool = False
    """The judge ended it early."""
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    wait_s: float | None = None


def report_of_death(wall_s: float) -> bytes:
    """Return the report of a test whose memory use killed the first process too."""
    return _REPORT.pack(signal.SIGKILL, 0.0, 0.0, wall_s, 0) + bytes(_ACCOUNT_BYTES)


def outcome_of(
    report: bytes, observed: Observed, limits: Limits, meter: Meter | None, stdout: Printed, stderr: Printed
) -> Outcome:
    """Return the outcome of the test that `meter` measures; without one, of a short test that nothing was refused to.

    Raises SandboxFault: its process could not be set up, the host refused a request within its limits, or its account
    names an unknown limit.
    """
    status, user_s, system_s, wall_s, peak_kib = _REPORT.unpack_from(report)
    account = report[_REPORT.size :].rstrip(b"\0").decode("ascii", "replace")
    if account == _SETTING_UP and not observed.is_cut_short:
        raise SandboxFault(f"the process of a test could not be set up (wait status {status})")
    exit_code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    used = meter.end_test(user_s + system_s) if meter else TestUsage(user_s + system_s)
    cpu_s = max(used.cpu_s, observed.cpu_s)
    used_by_thread.cpu_s += cpu_s
    peak_mb = max(peak_kib / 1024, used.peak_mb, observed.peak_mb)
    ended = observed.ended_by
    if ended is None and meter and meter.is_memory_exceeded():
        ended = Ended.MEMORY
    if ended is None:
        is_output_full = stdout.num_cut > 0 or stderr.num_cut > 0
        ended = _reason(limits, status, cpu_s, peak_mb, account, is_output_full=is_output_full)
    if meter and (ended, exit_code) != (Ended.EXITED, 0) and (refusal := meter.refusal_of_host()):
        raise ExhaustedFault(refusal)
    return Outcome(
        ended=ended,
        exit_code=exit_code,
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        stdout=stdout.content,
        stderr=stderr.content,
        stdout_cut=stdout.num_cut,
        stderr_cut=stderr.num_cut,
        cpu_s=cpu_s,
        wall_s=wall_s,
        memory_mb=peak_mb,
        detail=printable(account),
        wait_s=observed.wait_s,
        system_s=system_s,
    )


def _reason(limits: Limits, status: int, cpu_s: float, peak_mb: float, account: str, *, is_output_full: bool) -> Ended:
    """Return why a test that was not stopped ended. Reads the program's account only for a failure."""
    if cpu_s > limits.cpu_s:
        return Ended.CPU_TIME
    if peak_mb > limits.memory_mb:
        return Ended.MEMORY
    if is_output_full:
        return Ended.OUTPUT
    if os.WIFSIGNALED(status):
        return next((e for e in Ended if e.limit and e.limit.signal == os.WTERMSIG(status)), Ended.SIGNALLED)
    return (limit_named(account) if status else None) or Ended.EXITED


def printable(text: str) -> str:
    """Return the text of a cell without unprintable characters, for messages."""
    return "".join(char if char.isprintable() else "?" for char in text)
