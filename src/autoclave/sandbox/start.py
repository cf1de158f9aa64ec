"""Choose and start the backend that the settings ask for, or say what the host lacks."""

from __future__ import annotations

from autoclave.config.sandbox import SandboxConfig
from autoclave.core import IsolationError
from autoclave.sandbox.interface import Sandbox
from autoclave.sandbox.namespace.sandbox import NamespaceSandbox


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
    return NamespaceSandbox()
