"""The limits of one problem, and which runs are too close to the time limit to be believed on a busy machine."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Ended, Outcome, Problem
from autoclave.sandbox import Limits

_GRACE = 1.25
"""A first run is killed at this multiple of the time limit ..."""
_NEAR = 0.8
"""... and counts only if it used less than this share of the limit, or more than the grace."""


@dataclass(frozen=True, slots=True)
class ProblemLimits:
    """`time_limit_s` decides; `first` is what a first run may use, `exact` what a run alone may use."""

    time_limit_s: float
    first: Limits
    exact: Limits

    def is_borderline(self, outcome: Outcome) -> bool:
        """Whether a run must be repeated alone, because neighbours may have changed how it ended."""
        share = outcome.cpu_s / self.time_limit_s
        is_killed = outcome.ended is Ended.SIGNALLED and outcome.signal == signal.SIGKILL  # by the host, perhaps
        return _NEAR <= share <= _GRACE or (outcome.ended is Ended.WALL_TIME and share < 1) or is_killed


def limits_of(problem: Problem, sandbox: SandboxConfig, judge: JudgeConfig) -> ProblemLimits:
    """The problem's own limits, clipped to the settings."""
    low, high = judge.time_limit_range
    wanted_s = judge.default_time_limit_s if problem.time_limit_s is None else problem.time_limit_s
    time_limit_s = min(max(wanted_s, low), high)
    exact = sandbox_limits(sandbox, time_limit_s, problem.memory_limit_mb)
    return ProblemLimits(time_limit_s, replace(exact, cpu_s=_GRACE * time_limit_s), exact)


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
