"""The backend `container`: sealed cells by podman or docker."""

from __future__ import annotations

from dataclasses import replace

from autoclave.config.levels import Level
from autoclave.config.sandbox import SandboxConfig
from autoclave.core import HostError
from autoclave.sandbox.container.engine import FIXES, EngineName, find_engine
from autoclave.sandbox.container.launch import ContainerLauncher
from autoclave.sandbox.host import HostCheck
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.pool import ZygotePool


class ContainerBackend:
    """One unprivileged container for each program that is judged at a time."""

    levels: tuple[Level, ...] = ("sealed",)

    def open(self, config: SandboxConfig, level: Level) -> Sandbox:
        return ZygotePool(ContainerLauncher(config))

    def validate(self, config: SandboxConfig) -> list[HostCheck]:
        names: tuple[EngineName, ...] = ("podman", "docker")
        chosen = names if config.container_engine == "auto" else (config.container_engine,)
        checks = [_check_engine(name, config.container_runtime) for name in chosen]
        is_needed = not any(check.is_present for check in checks)  # one is enough
        return [replace(check, is_required=is_needed) for check in checks]


def _check_engine(name: EngineName, runtime: str) -> HostCheck:
    detail = ""
    try:
        find_engine(name, runtime)
    except HostError as error:
        detail = str(error).partition(" Fix:")[0].removeprefix("no container engine: ")
    return HostCheck(
        f"container engine {name}",
        not detail,
        False,
        "starts the containers of the backend container; podman or docker is enough",
        FIXES[name],
        detail or "answers",
        "backends",
    )


BACKEND = ContainerBackend()
