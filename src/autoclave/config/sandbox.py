"""Settings of the sandbox and the judge."""

from collections.abc import Iterator
from typing import Literal

from pydantic import field_validator

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat
from autoclave.config.languages import BUILT_IN_PROFILES, CppConfig, ProfileConfig
from autoclave.config.levels import LEVELS, Level
from autoclave.config.remote import RemoteJudgeConfig
from autoclave.core.plugins import plugin_names

OWN_BACKENDS = ("namespace", "container", "subprocess")
BACKEND_GROUP = "autoclave.sandbox_backends"
"""Entry points of this group are backends of other packages."""


def backend_names() -> tuple[str, ...]:
    """Every backend that can be chosen: our own, then those that installed packages add."""
    return tuple(dict.fromkeys((*OWN_BACKENDS, *plugin_names(BACKEND_GROUP))))


class SandboxConfig(Config):
    """Confinement of untrusted programs."""

    backend: str = "namespace"
    """Backend that makes the cells. `namespace`: Linux namespaces, no daemon, no privileges needed. `container`: podman
    or docker. `subprocess`: nothing, the program can do what you can. Installed packages may add more."""
    container_engine: Literal["auto", "podman", "docker"] = "auto"
    """Engine of the container backend; `auto` is podman, else docker."""
    container_runtime: str = ""
    """Runtime that the engine starts containers with, such as `runc` or `crun`; empty for its own choice."""
    level: Literal["auto", "sealed", "restricted", "open"] = "auto"
    """Isolation wanted: `auto` is the best this host gives, a name is exactly that level."""
    minimum_level: Level = "sealed"
    """Least isolation accepted; the sandbox refuses to start below it."""
    memory_limit_mb: Positive = 512
    """Memory of one program with all its processes, in MiB. A problem's own limit applies when it is smaller."""
    output_limit_mb: PositiveFloat = 16.0
    """Most that one test may print to standard output and error, each, in MiB."""
    process_limit: Positive = 128
    """Most processes and threads of one program at a time."""
    disk_limit_mb: Positive = 64
    """Size of the scratch file system that each test gets fresh, in MiB."""
    open_files_limit: Positive = 64
    """Most open file descriptors of a process."""

    @field_validator("backend")
    @classmethod
    def _backend_is_known(cls, name: str) -> str:
        if name not in OWN_BACKENDS and name not in backend_names():
            raise ValueError(f'"{name}" is no backend here; must be one of {", ".join(backend_names())}')
        return name

    def broken_rules(self) -> Iterator[str]:
        if self.level != "auto" and LEVELS.index(self.level) < LEVELS.index(self.minimum_level):
            yield (
                f'level "{self.level}" is below minimum_level "{self.minimum_level}"; '
                f"to accept it set sandbox.minimum_level={self.level}"
            )


class JudgeConfig(Config):
    """Judging of programs."""

    backend: Literal["local", "remote"] = "local"
    """Place of the judge. `local`: on this machine. `remote`: by servers (`autoclave serve`), see `remote`; workers,
    limits, profiles and isolation are then the servers' own settings."""
    remote: RemoteJudgeConfig = RemoteJudgeConfig()
    """The servers that judge, with `backend=remote`."""
    workers: NonNegative = 0
    """Programs judged at the same time; 0 means one per core."""
    time_limit_range: tuple[PositiveFloat, PositiveFloat] = (6.0, 12.0)
    """Least and greatest CPU seconds per test; a problem's own limit is clipped to this."""
    default_time_limit_s: PositiveFloat = 6.0
    """CPU seconds per test for a problem without a limit of its own, clipped to the range as well."""
    pending_limit: Positive = 64
    """Most programs that wait or run in the judge while a file is judged; bounds memory."""
    profiles: dict[str, ProfileConfig] = {}
    """Profiles of your own, by the name that problems give."""
    cpp: CppConfig = CppConfig()
    """Compiling C++."""

    def broken_rules(self) -> Iterator[str]:
        for name in self.profiles:
            if name in BUILT_IN_PROFILES:
                yield f'profiles: "{name}" is the name of a built-in profile; choose another'
        if self.backend == "remote":
            if not self.remote.urls:
                yield "remote.urls: name the servers, such as remote.urls=[http://host:8750]"
            for name in ("workers", "time_limit_range", "default_time_limit_s", "profiles", "cpp"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    yield f"{name} is ignored with backend=remote: set it where the servers start"
        elif self.remote != RemoteJudgeConfig():
            yield "remote is ignored with backend=local; set backend=remote, or remove it"
        low, high = self.time_limit_range
        if low > high:
            yield f"time_limit_range = [{low}, {high}]: the first number must not exceed the second"


def unused_isolation(judge: JudgeConfig, sandbox: SandboxConfig) -> Iterator[str]:
    """Settings of isolation that servers decide. `minimum_level` is what they are held to."""
    if judge.backend == "remote":
        for name, info in SandboxConfig.model_fields.items():
            if name != "minimum_level" and getattr(sandbox, name) != info.default:
                yield f"sandbox.{name} is ignored with judge.backend=remote: set it where the servers start"
