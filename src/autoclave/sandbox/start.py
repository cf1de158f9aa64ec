"""Choose and start what the settings ask for, or say what the host lacks."""

from __future__ import annotations

import logging
from functools import cache

from autoclave.config.levels import LEVELS, Level
from autoclave.config.sandbox import SandboxConfig
from autoclave.core import HostError, IsolationError, SandboxFault
from autoclave.sandbox.backend import Backend, find_backend
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.trial import try_sandbox

_log = logging.getLogger(__name__)


def open_sandbox(config: SandboxConfig) -> Sandbox:
    """A sandbox that isolates at least as much as `config.minimum_level`.

    Raises:
        IsolationError: the level asked for is not offered by the backend or cannot be reached on this host.
    """
    backend = find_backend(config.backend)
    return backend.open(config, _proven_level(config.model_dump_json()))


@cache
def _proven_level(settings: str) -> Level:
    """The best level that the settings allow and of which a cell was seen to work. Tried once per process."""
    config = SandboxConfig.model_validate_json(settings)
    backend = find_backend(config.backend)
    reasons: list[str] = []
    for level in _wanted(config, backend):
        try:
            try_level(config, backend, level)
        except (HostError, SandboxFault) as error:
            reasons.append(f'sandbox.level "{level}" cannot be reached on this host: {error}')
            continue
        if reasons:
            _log.warning('%s. Level "%s" is used, as sandbox.minimum_level allows.', "; ".join(reasons), level)
        return level
    missing = [check for check in backend.validate(config) if check.is_required and not check.is_present]
    fixes = [f"  {check.name}: {check.detail}\n    Fix: {check.fix}" for check in missing]
    raise IsolationError("\n".join(reasons + fixes)) from None


def _wanted(config: SandboxConfig, backend: Backend) -> list[Level]:
    """The levels to try, best first.

    Raises:
        IsolationError: the backend offers none that would do.
    """
    enough: list[Level] = [
        level for level in backend.levels if LEVELS.index(level) >= LEVELS.index(config.minimum_level)
    ]
    wanted: list[Level] = enough if config.level == "auto" else [level for level in enough if level == config.level]
    if not wanted:
        requested = config.minimum_level if config.level == "auto" else config.level
        offered = " or ".join(f'"{level}"' for level in backend.levels)
        raise IsolationError(
            f"sandbox.level = {config.level}, sandbox.minimum_level = {config.minimum_level}: backend "
            f'"{config.backend}" offers {offered}, not "{requested}". Fix: sandbox.level={backend.levels[0]}'
            + ("" if enough else f" and sandbox.minimum_level={backend.levels[0]}, to accept less isolation")
            + ", or another sandbox.backend."
        )
    return wanted


def try_level(config: SandboxConfig, backend: Backend, level: Level) -> None:
    """Run a program in a cell of this level.

    Raises:
        HostError: the host lacks something; the message says the fix.
        SandboxFault: no cell could be made, or the program could do what the level forbids.
    """
    sandbox = backend.open(config, level)
    try:
        try_sandbox(sandbox)
    finally:
        sandbox.close()
