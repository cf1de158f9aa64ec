"""Errors of workers in the driver: the same exception, with the worker's traceback as its cause."""

import traceback
from dataclasses import dataclass
from typing import Any

from autoclave.core import WorkerFault
from autoclave.workers.wire import Message, pack


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception on its way: packed if it can be, and as text."""

    error: Message | None
    summary: str
    traceback: str

    @staticmethod
    def of(error: BaseException) -> "Failure":
        """Return what can be sent of `error`."""
        summary = "".join(traceback.format_exception_only(error)).strip()
        return Failure(_packed(error), summary, "".join(traceback.format_exception(error)))

    def to_exception(self, group: str, rank: int, node: str) -> BaseException:
        """The exception to raise in the driver; a `WorkerFault` with its text where it has no type here."""
        error = _unpacked(self.error) or WorkerFault(self.summary)
        error.__cause__ = WorkerTraceback(self.traceback)
        locate(error, group, rank, node)
        return error


class WorkerTraceback(Exception):
    """The traceback that a worker raised with; shown above that of the driver."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def locate(error: BaseException, group: str, rank: int, node: str) -> None:
    """Note on `error` which worker raised it."""
    note = f"Raised by rank {rank} of worker group {group!r} on node {node}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _packed(error: BaseException) -> Message | None:
    try:
        message = pack(error)
        return message if type(message.fetch()) is type(error) else None
    except Exception:  # noqa: BLE001  packing runs the exception's own code; its text is sent instead
        return None


def _unpacked(message: Message | None) -> BaseException | None:
    try:
        error = message.fetch() if message else None
    except Exception:  # noqa: BLE001  its class is not to be had here; its text is raised instead
        return None
    return error if isinstance(error, BaseException) else None


@dataclass(frozen=True, slots=True)
class Order:
    """Order to a process: an operation of `WorkerHost`, and the method of the worker if it calls one."""

    operation: str
    method: str = ""
    is_wanted: bool = True
    """True if the result is sent back."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The call is done. `value` is None if the result was not requested."""

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
