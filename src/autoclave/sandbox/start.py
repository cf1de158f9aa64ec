"""Choose and start the backend that the settings ask for, or say what the host lacks."""

from __future__ import annotations

from functools import cache

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError, SandboxFault
from autoclave.sandbox.host import missing_for_sealed
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.namespace.sandbox import NamespaceSandbox, try_sealed_cell


def open_sandbox(config: SandboxConfig) -> Sandbox:
    """A sandbox that isolates at least as much as `config.minimum_level`.

    Raises:
        IsolationError: the level asked for is not offered by the backend or cannot be reached on this host.
    """
    if config.level not in ("auto", "sealed"):
        raise IsolationError(
            f'sandbox.level = {config.level}: backend "{config.backend}" offers only "sealed". '
            "Mend: sandbox.level=sealed, or leave it at auto."
        )
    _require_sealed()
    return NamespaceSandbox()


@cache
def _require_sealed() -> None:
    """Prove once per process that sealed cells work here."""
    try:
        try_sealed_cell()
    except SandboxFault as fault:
        lacking = missing_for_sealed()
        raise IsolationError(f'sandbox.level "sealed" cannot be reached on this host: {fault}\n{lacking}') from None
