"""Survey of the backends that work here, with their levels of isolation: a program is run in a cell of each.

What the host offers by itself is in `host.py`. `autoclave doctor` prints both.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autoclave.config.levels import Level
from autoclave.config.sandbox import SandboxConfig, backend_names
from autoclave.core import AutoclaveError
from autoclave.sandbox.backend import find_backend
from autoclave.sandbox.host import HostCheck
from autoclave.sandbox.start import try_level

_GAIN: dict[Level, str] = {
    "sealed": "a program sees nothing of the host",
    "restricted": "a program opens no file of the host and signals no process; that they exist it sees",
    "open": "no isolation: a program can do what you can",
}
_FIX = "fix what is missing above, or choose another sandbox.backend"


def validate_backends(config: SandboxConfig) -> list[HostCheck]:
    """One check per backend and level, after what only that backend needs; the one that the settings name is marked."""
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = threads.map(partial(_validate, config=config), backend_names())
        return [check for checks in found for check in checks]


def _validate(name: str, config: SandboxConfig) -> list[HostCheck]:
    try:
        backend = find_backend(name)
        own = [check for check in backend.validate(config) if check.section == "backends"]
        return own + [_level_check(name, level, own, config) for level in backend.levels]
    except (AutoclaveError, ImportError) as error:
        why = "an installed package offers it"
        return [HostCheck(f"{name}", False, name == config.backend, why, "repair that package", str(error), "backends")]


def _level_check(name: str, level: Level, own: list[HostCheck], config: SandboxConfig) -> HostCheck:
    problem = ""
    try:
        try_level(config, find_backend(name), level)
    except AutoclaveError as error:
        problem = str(error).partition(" Fix:")[0]
    fixes = [check.fix for check in own if not check.is_present]
    is_configured = name == config.backend
    requested = config.minimum_level if config.level == "auto" else config.level
    return HostCheck(
        f"{name}: {level}" + (" (configured)" if is_configured else ""),
        not problem,
        is_configured and level == requested,
        _GAIN[level],
        "; or ".join(fixes) or _FIX,
        problem or "a program ran in a cell",
        "backends",
    )
