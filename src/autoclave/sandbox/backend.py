"""What a backend is, and how one is found by its name: our own from a table, others from entry points.

A package adds one by an entry point of the group `autoclave.sandbox_backends` that names an object like `Backend`.
`autoclave.sandbox.conformance` holds the tests that it has to pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol

from autoclave.config.levels import Level
from autoclave.config.sandbox import BACKEND_GROUP, SandboxConfig
from autoclave.core import HostError
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
    """What it offers where the host allows it, most isolation first."""

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        """A sandbox of exactly this level, which is one of `levels`. That its cells work is tried by the caller.

        Raises:
            HostError: the host lacks something; the message says the fix.
            SandboxFault: it cannot be started.
        """
        ...

    def examine(self, config: SandboxConfig) -> list[HostCheck]:
        """What the host offers for it, item by item."""
        ...


def find_backend(name: str) -> Backend:
    """The backend of this name.

    Raises:
        HostError: no installed package has it.
    """
    if name in _OWN:
        return import_module(_OWN[name]).BACKEND
    for entry_point in entry_points(group=BACKEND_GROUP, name=name):
        return entry_point.load()
    raise HostError(f'sandbox.backend = "{name}": no installed package has it. Fix: install the one that does.')
