"""State of a weight memory, the version and the readers of each slot: 64 KiB that all processes of a machine share.

    0    magic, token (which memory this is)
    64   slots: state, version                         written by the writer alone
    192  seats: slots in use, process, its start, name  each written by one reader

A slot is valid once its writer has marked it complete, so a writer killed in the middle of a write leaves a slot that
no reader uses. A reader marks a slot as used before it looks at its state, and the writer looks at the seats before and
after it marks the slot as being written: whichever comes second sees the other. The seat of a process that has ended
counts as empty.
"""

import os
import time
from enum import IntEnum
from pathlib import Path

import numpy as np

from autoclave.core import FaultError, HostError

CONTROL_BYTES = 1 << 16
_MAGIC = b"autoclav"
_HEAD = np.dtype([("magic", "S8"), ("token", "S32"), ("writer", "i8"), ("num_slots", "i8"), ("pad", "i8")])
_SLOT = np.dtype([("state", "i8"), ("version", "i8"), ("pad", "i8", 6)])
_READER = np.dtype([("slots", "i8"), ("process", "i8"), ("started", "i8"), ("name", "S40")])
NUM_READERS = (CONTROL_BYTES - 192) // _READER.itemsize
_POLL_S = 0.002


class State(IntEnum):
    """Of a slot."""

    EMPTY = 0
    """Nothing was ever written there."""
    WRITING = 1
    """It is being written, or its writer ended while it wrote."""
    WHOLE = 2
    """It holds its version."""


class Control:
    """The control block in `block`, (CONTROL_BYTES,) uint8."""

    def __init__(self, block: np.ndarray) -> None:
        self._head = block[: _HEAD.itemsize].view(_HEAD)
        self._slots = block[64:192].view(_SLOT)
        self._readers = block[192 : 192 + NUM_READERS * _READER.itemsize].view(_READER)

    def set_up(self, token: str, num_slots: int) -> None:
        """Begin to use the block, which is all zeros; this process is the writer."""
        self._head["token"], self._head["writer"], self._head["num_slots"] = token.encode(), os.getpid(), num_slots
        self._head["magic"] = _MAGIC

    def require(self, token: str) -> None:
        """Check that this is the block of `token`. Raises HostError: it is another, or none."""
        if self._head["magic"][0] != _MAGIC or self._head["token"][0] != token.encode():
            raise HostError("the memory of the published weights is gone: another stands at its address")

    @property
    def num_slots(self) -> int:
        return int(self._head["num_slots"][0])

    # --- The writer

    def begin(self, version: int, deadline_s: float) -> int:
        """The slot to write `version` to, which no reader uses, marked as being written.

        Raises FaultError: a reader still uses it after `deadline_s`; the message names who.
        """
        whole = {self._version(slot): slot for slot in range(self.num_slots) if self._state(slot) is State.WHOLE}
        newest = whole[max(whole)] if whole else self.num_slots - 1
        slot = (newest + 1) % self.num_slots
        self._wait(slot, version, time.monotonic() + deadline_s, deadline_s)
        former = self._slots[slot].copy()
        self._slots[slot]["state"], self._slots[slot]["version"] = State.WRITING, version
        try:
            self._wait(slot, version, time.monotonic() + deadline_s, deadline_s)
        except FaultError:
            self._slots[slot] = former
            raise
        return slot

    def commit(self, slot: int) -> None:
        """The slot holds what was begun."""
        self._slots[slot]["state"] = State.WHOLE

    def _wait(self, slot: int, version: int, deadline: float, deadline_s: float) -> None:
        while users := self.users(slot):
            if time.monotonic() > deadline:
                raise FaultError(
                    f"publish of version {version}: its memory is still in use for version {self._version(slot)} by "
                    f"{', '.join(users)} after {deadline_s:g} s; a sampler that hangs must be ended and attached again"
                )
            time.sleep(_POLL_S)

    def users(self, slot: int) -> list[str]:
        """Readers that use the slot, by name and process."""
        taken = self._readers[(self._readers["slots"] & (1 << slot)) != 0]
        return [
            f"{reader['name'].decode()} (process {reader['process']})"
            for reader in taken
            if _start_of(int(reader["process"])) == reader["started"]
        ]

    # --- A reader

    def register(self, reader: int, name: str) -> None:
        """Take the seat of this number, which no live process has, as `name`."""
        own = self._readers[reader : reader + 1]
        own["slots"] = 0
        own["process"], own["started"] = os.getpid(), _start_of(os.getpid())
        own["name"] = name.encode()[:40]

    def hold(self, reader: int, version: int) -> int:
        """The slot of `version`, which stays as it is until it is let go.

        Raises FaultError: no slot holds that version whole; the message says what there is.
        """
        for slot in range(self.num_slots):
            if self._version(slot) == version and self._state(slot) is not State.EMPTY:
                before = self._readers[reader]["slots"]
                self._readers[reader]["slots"] |= 1 << slot
                if self._state(slot) is State.WHOLE and self._version(slot) == version:
                    return slot
                self._readers[reader]["slots"] = before
        raise FaultError(f"version {version} was not published whole: {self._account()}")

    def let_go(self, reader: int, slots: int) -> None:
        """Stop using the slots of this bit mask."""
        self._readers[reader]["slots"] &= ~slots

    def _account(self) -> str:
        said = {
            State.EMPTY: "slot {} is empty",
            State.WRITING: "slot {} holds a half-written version {}",
            State.WHOLE: "slot {} holds version {}",
        }
        writer = int(self._head["writer"][0])
        parts = [said[self._state(slot)].format(slot, self._version(slot)) for slot in range(self.num_slots)]
        is_gone = _start_of(writer) is None
        return f"{', '.join(parts)}; its writer (process {writer}) {'has ended' if is_gone else 'is alive'}"

    def _state(self, slot: int) -> State:
        return State(int(self._slots[slot]["state"]))

    def _version(self, slot: int) -> int:
        return int(self._slots[slot]["version"])


def _start_of(process: int) -> int | None:
    """Start time of a process, in ticks of the kernel; None if it does not exist, or only its exit code is left."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
