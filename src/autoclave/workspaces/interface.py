"""Protocol of a workspace: a sealed place with files and tools in which an episode acts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

from autoclave.config.levels import Level
from autoclave.core import EndState


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a policy may call, with the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call. `ended_by` names the limit that ended the call, such as `cpu_time`; else it is empty."""

    text: str
    is_error: bool = False
    ended_by: str = ""
    is_over: bool = False
    """A limit of the whole episode is reached: there are no further calls."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The part of an end state that is carried out: regular files whose paths match a pattern, up to these sizes.

    Patterns are those of `fnmatch`, in which `*` also matches `/`.
    """

    patterns: tuple[str, ...] = ("*",)
    most_files: int = 1000
    most_bytes: int = 16 << 20
    left_out: tuple[str, ...] = field(default=(".git/*",))
    """Patterns of paths that are never carried out."""

    def covers(self, path: str) -> bool:
        return any(fnmatchcase(path, each) for each in self.patterns) and not any(
            fnmatchcase(path, each) for each in self.left_out
        )


@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """Limits of a workspace: those that begin with `call_` are of one call, the others of the whole episode.

    Files are held in memory: all together may use `memory_mb + disk_mb`. Wall time between calls does not count.
    With `keeps_processes`, what a call starts may outlive it; else only the Python session does, stopped between calls.
    """

    call_cpu_s: float = 30.0
    call_wall_s: float = 60.0
    call_output_bytes: int = 1 << 18
    cpu_s: float = 300.0
    wall_s: float = 600.0
    output_bytes: int = 1 << 22
    memory_mb: int = 512
    disk_mb: int = 256
    num_files: int = 1 << 16
    processes: int = 64
    open_files: int = 256
    keeps_processes: bool = False


class Workspace(Protocol):
    """The sealed place of one episode. One call at a time."""

    tools: Sequence[Tool]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Future[ToolResult]:
        """Call a tool. What the caller does wrong is a result with `is_error`; a SandboxFault is the host's."""
        ...

    def end(self, declared: Declared) -> Future[EndState]:
        """Kill every process, then carry out the declared files as data."""
        ...

    def close(self) -> None:
        """Kill every process and remove all files."""


class Workspaces(Protocol):
    """Makes workspaces, some ahead of time. Safe to use from several threads."""

    level: Level

    def start(self, files: Mapping[str, bytes], test_command: str = "") -> Future[Workspace]:
        """Return a fresh workspace that holds `files`, by path. `test_command` is that of its tool `run_tests`."""
        ...

    def close(self) -> None:
        """End all workspaces."""
