"""The backend `namespace`: sealed, or restricted on hosts that refuse namespaces."""

from __future__ import annotations

from autoclave.config.levels import Level
from autoclave.config.sandbox import SandboxConfig
from autoclave.sandbox.host import HostCheck, validate_host
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.namespace.launch import NamespaceLauncher
from autoclave.sandbox.pool import ZygotePool
from autoclave.sandbox.unsealed import RestrictedLauncher


class NamespaceBackend:
    """No daemon and no privileges needed."""

    levels: tuple[Level, ...] = ("sealed", "restricted")

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(NamespaceLauncher() if level == "sealed" else RestrictedLauncher())

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        return validate_host()


BACKEND = NamespaceBackend()
