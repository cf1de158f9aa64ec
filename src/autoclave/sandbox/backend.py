"""Protocol of a backend, the built-in ones, and lookup by name; others come from entry points.

A package adds one by an entry point of the group `autoclave.sandbox_backends` that names an object like `Backend`.
`autoclave_testing.sandboxes` holds the tests that it has to pass.
"""

from collections.abc import Sequence
from typing import Protocol

from autoclave.config.levels import Level
from autoclave.config.sandbox import BACKEND_GROUP, SandboxConfig
from autoclave.core.plugins import find_plugin
from autoclave.sandbox.container.engine import check_engines
from autoclave.sandbox.container.launch import ContainerLauncher
from autoclave.sandbox.host import HostCheck, validate_host
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from autoclave.sandbox.unsealed import OpenLauncher, RestrictedLauncher


class Backend(Protocol):
    """One way of making cells."""

    levels: Sequence[Level]
    """Levels that it offers where the host allows them, most isolation first."""

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        """A sandbox of exactly this level, which is one of `levels`. That its cells work is tried by the caller.

        Raises HostError: a requirement is missing on the host; the message has the fix. SandboxFault: it cannot be
        started.
        """
        ...

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        """Checks of what the host offers for it, item by item."""
        ...


class NamespaceBackend:
    """Sealed, or restricted on hosts that refuse namespaces. No daemon and no privileges needed."""

    levels: Sequence[Level] = ("sealed", "restricted")

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(NamespaceLauncher() if level == "sealed" else RestrictedLauncher())

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        return validate_host()


class ContainerBackend:
    """Sealed cells by podman or docker: one unprivileged container for each program that is judged at a time."""

    levels: Sequence[Level] = ("sealed",)

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(ContainerLauncher(config))

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        return check_engines(config.container_engine, config.container_runtime)


class SubprocessBackend:
    """No isolation: a program runs as the judging user, with limits and a folder to itself.

    For hosts where nothing else works and for programs that you trust. A program can read and change whatever you can,
    unnoticed: do not use it for programs that a model wrote.
    """

    levels: Sequence[Level] = ("open",)

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(OpenLauncher())

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        return []


SUBPROCESS = SubprocessBackend()
_OWN: dict[str, Backend] = {"namespace": NamespaceBackend(), "container": ContainerBackend(), "subprocess": SUBPROCESS}


def find_backend(name: str) -> Backend:
    """The backend of this name. Raises HostError: no installed package has it, or it cannot be loaded."""
    return _OWN[name] if name in _OWN else find_plugin(BACKEND_GROUP, name, "sandbox.backend", _OWN)
