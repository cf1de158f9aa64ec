"""Protocol of a backend, and lookup by name: built-in ones from a table, others from entry points.

A package adds one by an entry point of the group `autoclave.sandbox_backends` that names an object like `Backend`.
`autoclave.sandbox.conformance` holds the tests that it has to pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from autoclave.config.levels import Level
from autoclave.config.sandbox import BACKEND_GROUP, SandboxConfig
from autoclave.core.plugins import find_plugin
from autoclave.sandbox.host import HostCheck
from autoclave.sandbox.interface import Sandbox

_OWN = {
    "namespace": "autoclave.sandbox.namespace.backend",
    "container": "autoclave.sandbox.container.backend",
    "subprocess": "autoclave.sandbox.subprocess_backend",
}


class Backend(Protocol):
    """One way of making cells."""

    levels: Sequence[Level]
    """Levels that it offers where the host allows them, most isolation first."""

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        """A sandbox of exactly this level, which is one of `levels`. That its cells work is tried by the caller.

        Raises:
            HostError: a requirement is missing on the host; the message has the fix.
            SandboxFault: it cannot be started.
        """
        ...

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        """Checks of what the host offers for it, item by item."""
        ...


def find_backend(name: str) -> Backend:
    """The backend of this name.

    Raises:
        HostError: no installed package has it, or it cannot be loaded.
    """
    if name in _OWN:
        return import_module(_OWN[name]).BACKEND
    return find_plugin(BACKEND_GROUP, name, "sandbox.backend", _OWN)
