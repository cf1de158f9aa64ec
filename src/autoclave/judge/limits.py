"""The limits of one problem, and the runs too close to the time limit to decide on a busy machine."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import CallTests, CustomChecker, Ended, InputError, Outcome, Problem, StdinTests
from autoclave.judge.plain_data import encode
from autoclave.sandbox import Limits

_GRACE = 1.25
"""A first run is killed at this multiple of the time limit ..."""
_NEAR = 0.8
"""... and counts only if it used less than this share of the limit, or more than the grace."""
RUNS_ALONE = 2
"""Attempts at a run alone while other programs of the host take its core."""
_PATIENCE = 4
"""Wall limits that a run alone can get back for waiting for a core. More would let one program delay all others."""
_PIPE_BYTES = 4096
"""Least capacity of a pipe; it shrinks when its user has many."""


@dataclass(frozen=True, slots=True)
class ProblemLimits:
    """`time_limit_s` decides; `first` is what a first run may use, `exact` what a run alone may use."""

    time_limit_s: float
    first: Limits
    exact: Limits

    def is_borderline(self, outcome: Outcome) -> bool:
        """Return whether a run must be repeated alone, because neighbours may have changed how it ended.

        The wall limit alone is not a reason: a test gets back what it waited for a core (`wait_s`), so one that sleeps
        or stops would meet the wall limit alone too. It is a reason when the wait is unknown, or too long to be given
        back in full; or when the test printed more than a pipe may hold, and may have waited for this process to read
        it. The kernel's work for a test (memory touched first, files) counts as the test's time but takes several times
        as long on a busy machine: above the grace, the rest of the time decides whether the limit was exceeded.
        """
        share = outcome.cpu_s / self.time_limit_s
        own_share = share - outcome.system_s / self.time_limit_s
        is_killed = outcome.ended is Ended.SIGNALLED and outcome.signal == signal.SIGKILL  # may come from the host
        has_printed_much = len(outcome.stdout) + len(outcome.stderr) >= _PIPE_BYTES
        is_held_up = outcome.wait_s is None or outcome.wait_s > self.first.most_given_back_s or has_printed_much
        is_starved = outcome.ended is Ended.WALL_TIME and share < 1 and is_held_up
        is_near = share >= _NEAR and (share <= _GRACE or own_share <= 1)
        return is_near or is_starved or is_killed

    def is_starved(self, outcome: Outcome) -> bool:
        """Return whether a run met the wall limit because it waited for a core longer than it could get back."""
        is_short = outcome.cpu_s < self.time_limit_s and outcome.ended is Ended.WALL_TIME
        return is_short and outcome.wait_s is not None and outcome.wait_s > self.exact.most_given_back_s


def limits_of(problem: Problem, sandbox: SandboxConfig, judge: JudgeConfig) -> ProblemLimits:
    """The problem's own limits, clipped to the settings."""
    return deciding_limits(sandbox, time_limit_of(problem, judge), problem.memory_limit_mb)


def deciding_limits(sandbox: SandboxConfig, time_limit_s: float, memory_limit_mb: int | None = None) -> ProblemLimits:
    """The limits of a run that a verdict depends on."""
    limits = sandbox_limits(sandbox, time_limit_s, memory_limit_mb)
    exact = replace(limits, given_back_s=_PATIENCE * limits.wall_s)
    return ProblemLimits(time_limit_s, replace(limits, cpu_s=_GRACE * time_limit_s), exact)


def time_limit_of(problem: Problem, judge: JudgeConfig) -> float:
    """CPU seconds of a test: the problem's own limit, clipped to the settings."""
    low, high = judge.time_limit_range
    wanted_s = judge.default_time_limit_s if problem.time_limit_s is None else problem.time_limit_s
    return min(max(wanted_s, low), high)


def sandbox_limits(sandbox: SandboxConfig, time_limit_s: float, memory_limit_mb: int | None = None) -> Limits:
    """Limits of one run with so many CPU seconds. The wall clock only stops what sleeps or waits."""
    memory_mb = sandbox.memory_limit_mb
    return Limits(
        cpu_s=time_limit_s,
        wall_s=3 * time_limit_s + 1,
        memory_mb=memory_mb if memory_limit_mb is None else min(memory_mb, memory_limit_mb),
        output_bytes=int(sandbox.output_limit_mb * 2**20),
        processes=sandbox.process_limit,
        disk_mb=sandbox.disk_limit_mb,
        open_files=sandbox.open_files_limit,
    )


def require_room_for_output(problem: Problem, sandbox: SandboxConfig) -> None:
    """Check that expected outputs fit into the output limit. A custom checker may expect anything.

    Raises InputError: an expected output exceeds the output limit; the message names problem and field.
    """
    if isinstance(problem.checker, CustomChecker):
        return
    for index, size in enumerate(_output_sizes(problem)):
        if size > sandbox.output_limit_mb * 2**20:
            raise InputError(
                f"problem {problem.id!r}: tests.cases[{index}].output: has {size / 2**20:.1f} MiB, but "
                f"sandbox.output_limit_mb = {sandbox.output_limit_mb}, so no program can solve it; raise that setting"
            )


def _output_sizes(problem: Problem) -> Iterator[int]:
    tests = problem.tests
    if isinstance(tests, StdinTests):
        yield from (len(case.output.strip().encode("utf-8", "surrogatepass")) for case in tests.cases)
    elif isinstance(tests, CallTests):
        yield from (len(encode(case.output)) for case in tests.cases)
