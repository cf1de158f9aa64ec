"""The backend `subprocess`: level `open`. A program runs as the judging user, with limits and a folder to itself.

For hosts where nothing else works and for programs that you trust. A program can read and change whatever you can,
unnoticed: do not use it for programs that a model wrote.
"""

from __future__ import annotations

from autoclave.config.levels import Level
from autoclave.config.sandbox import SandboxConfig
from autoclave.sandbox.host import HostCheck
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.pool import ZygotePool
from autoclave.sandbox.unsealed import OpenLauncher


class SubprocessBackend:
    """No isolation."""

    levels: tuple[Level, ...] = ("open",)

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(OpenLauncher())

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        return []


BACKEND = SubprocessBackend()
