"""One untrusted program, sealed. Imports `core` and `config` only; knows neither problems nor answers."""

from autoclave.sandbox.container.engine import without_pause_process
from autoclave.sandbox.host import HostCheck, validate_host
from autoclave.sandbox.interface import Cell, Limits, Profile, Runner, Sandbox, Session
from autoclave.sandbox.packages import require_package
from autoclave.sandbox.start import open_sandbox, validate_backends

__all__ = [
    "Cell",
    "HostCheck",
    "Limits",
    "Profile",
    "Runner",
    "Sandbox",
    "Session",
    "open_sandbox",
    "require_package",
    "validate_backends",
    "validate_host",
    "without_pause_process",
]
