"""A server among those that share its store: signs of life, and taking over from those that gave none for long."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from autoclave.service.dispatcher import Dispatcher
from autoclave.service.store import Batch, Store, StoreAway

_BEATS_IN_A_LEASE = 3
_log = logging.getLogger(__name__)

Adopted = Callable[[Sequence[Batch]], None]


class Node:
    """A thread that beats. A node that is silent for `lease_s` seconds is taken for dead by the others."""

    def __init__(self, store: Store, dispatcher: Dispatcher, lease_s: float) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._lease_s = lease_s
        self._last_beat = self._adopts_from = 0.0
        self._is_stopped = threading.Event()
        self._adopted: Adopted = lambda _: None
        self._thread = threading.Thread(target=self._work, name="node", daemon=True)

    @property
    def is_in_touch(self) -> bool:
        """Whether the store knows that this node is alive."""
        return time.monotonic() - self._last_beat < self._lease_s

    def start(self, adopted: Adopted) -> None:
        """Join the others, and begin to judge. `adopted` is told of batches whose clients may be gone, from any thread.

        Raises:
            StoreAway: the database does not answer.
        """
        self._adopted = adopted
        self._store.join()
        self._beat()
        self._adopt()
        self._dispatcher.start()
        self._thread.start()

    def stop(self) -> None:
        """Judge no more, and leave what is left to the others."""
        self._is_stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._dispatcher.stop()
        with contextlib.suppress(StoreAway):  # then they find out by themselves
            self._store.leave()

    def _beat(self) -> None:
        self._store.beat(self._dispatcher.slots, self._dispatcher.per_s())
        now = time.monotonic()
        if self._last_beat and now - self._last_beat >= self._lease_s:
            # The store was away, or this process stood still: the others may look dead, too, and be alive.
            self._adopts_from = now + self._lease_s
        self._last_beat = now

    def _adopt(self) -> None:
        if batches := self._store.adopt(self._lease_s):
            self._adopted(batches)

    def _work(self) -> None:
        while not self._is_stopped.wait(self._lease_s / _BEATS_IN_A_LEASE):
            try:
                self._beat()
                if time.monotonic() >= self._adopts_from:
                    self._adopt()
                self._dispatcher.recheck()
            except StoreAway:
                continue
            except Exception:  # noqa: BLE001  the thread must live, or others take over what is well
                _log.exception("the store failed; trying again")
