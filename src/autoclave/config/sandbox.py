"""Settings of the sandbox and the judge."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat

Level = Literal["sealed", "restricted", "open"]
LEVELS: tuple[Level, ...] = ("open", "restricted", "sealed")
"""From least to most isolated."""


class SandboxConfig(Config):
    """How untrusted programs are confined."""

    backend: Literal["namespace"] = "namespace"
    """What makes the cells. `namespace`: Linux namespaces, no daemon, no privileges needed."""

    level: Literal["auto", "sealed", "restricted", "open"] = "auto"
    """Isolation wanted: `auto` is the best this host gives, a name is exactly that level."""

    minimum_level: Level = "sealed"
    """Least isolation accepted; the sandbox refuses to start below it."""

    memory_limit_mb: Positive = 512
    """Memory of one program with all its processes, in MiB. A problem's own limit applies when it is smaller."""

    output_limit_mb: PositiveFloat = 16.0
    """Most that one test may print to standard output and error, each, in MiB."""

    process_limit: Positive = 32
    """Most processes and threads of one program at a time."""

    disk_limit_mb: Positive = 64
    """Size of the scratch file system that each test gets fresh, in MiB."""

    open_files_limit: Positive = 64
    """Most open file descriptors of a process."""

    @model_validator(mode="after")
    def _level_reaches_minimum(self) -> Self:
        if self.level != "auto" and LEVELS.index(self.level) < LEVELS.index(self.minimum_level):
            raise ValueError(
                f'level "{self.level}" is below minimum_level "{self.minimum_level}"; '
                f"to accept it set sandbox.minimum_level={self.level}"
            )
        return self


class JudgeConfig(Config):
    """How programs are judged."""

    backend: Literal["local"] = "local"
    """Where judging happens. `local`: on this machine."""

    workers: NonNegative = 0
    """Programs judged at the same time; 0 means one per core."""

    time_limit_range: tuple[PositiveFloat, PositiveFloat] = (6.0, 12.0)
    """Least and greatest CPU seconds per test; a problem's own limit is clipped to this."""

    default_time_limit_s: PositiveFloat = 6.0
    """CPU seconds per test for a problem without a limit of its own, clipped to the range as well."""

    pending_limit: Positive = 64
    """Most programs that wait or run in the judge while a file is judged; bounds memory."""

    @model_validator(mode="after")
    def _range_is_ordered(self) -> Self:
        low, high = self.time_limit_range
        if low > high:
            raise ValueError(f"time_limit_range = [{low}, {high}]: the first number must not exceed the second")
        return self
