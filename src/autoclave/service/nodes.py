"""A server among those that share its store: heartbeats, and adoption of the jobs of dead servers."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from autoclave.service.dispatcher import Dispatcher
from autoclave.service.store.records import Batch, StoreUnavailable
from autoclave.service.store.sql import Store

_BEATS_IN_A_LEASE = 3
_NAME = f"{socket.gethostname()}:{os.getpid()}"
_log = logging.getLogger(__name__)

Adopted = Callable[[Sequence[Batch]], None]


class Node:
    """A thread that sends heartbeats. Other nodes take a node for dead after `lease_s` seconds without one."""

    def __init__(self, store: Store, dispatcher: Dispatcher, lease_s: float) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._lease_s = lease_s
        self._last_beat = self._adopts_from = 0.0
        self._is_stopped = threading.Event()
        self._adopted: Adopted = lambda _: None
        self._is_ending = False
        self.on_end: Callable[[], None] = dispatcher.stop
        """Called once, when an operator has the server end."""
        self._thread = threading.Thread(target=self._work, name="node", daemon=True)

    @property
    def is_in_touch(self) -> bool:
        return time.monotonic() - self._last_beat < self._lease_s

    def start(self, adopted: Adopted) -> None:
        """Register, and start to judge. `adopted` is called, from any thread, with batches whose clients may be gone.

        Raises StoreUnavailable: the database does not respond.
        """
        self._adopted = adopted
        self._store.join()
        self._beat()
        self._adopt()
        self._dispatcher.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop judging, and leave unfinished jobs to other nodes."""
        self._is_stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._dispatcher.stop()
        with contextlib.suppress(StoreUnavailable):  # then the lease expires
            self._store.leave()

    def _beat(self) -> None:
        if self._store.beat(self._dispatcher.slots, self._dispatcher.per_s(), _NAME) and not self._is_ending:
            _log.info("an operator has this server end")
            self._is_ending = True
            self.on_end()
        now = time.monotonic()
        if self._last_beat and now - self._last_beat >= self._lease_s:
            # The store was unavailable, or this process was paused: live nodes may look dead too.
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
            except StoreUnavailable:
                continue
            except Exception:  # noqa: BLE001  without heartbeats, other nodes would adopt running jobs
                _log.exception("the store failed; retrying")
