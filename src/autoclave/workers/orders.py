"""Messages between the driver and the processes of workers.

A value is packed (`wire.Message`) when a process answers, and held somewhere (`wire.Held`) when the driver is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoclave.workers.failures import Failure


@dataclass(frozen=True, slots=True)
class Order:
    """Order to a process: an operation of `WorkerHost`, and the method of the worker if it calls one."""

    operation: str
    method: str = ""
    is_wanted: bool = True
    """True if the result is sent back."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The call is done. `value` is None where nobody asked for the result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The call has failed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Died:
    """The process has ended; the transport says so in its place. `how` ends a sentence about it."""

    how: str


Answer = Returned | Raised
Event = Answer | Died
