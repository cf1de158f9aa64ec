"""What nodes tell each other through PostgreSQL: a thread with a connection of its own that waits for notifications."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from autoclave.service.store.interface import Event, News, StoreAway

CHANNEL = "autoclave"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_log = logging.getLogger(__name__)


def written(event: Event) -> str:
    """The payload of a notification."""
    return f"{event.news} {event.batch}"


def read(payload: str) -> Event:
    """What `written` wrote; news of a later version are anything."""
    word, _, batch = payload.partition(" ")
    return Event(News(word), batch) if word in list(News) else Event(News.UNKNOWN)


class Listener:
    """Calls `hear` for what nodes tell. After each new connection news may have been missed, which is told, too."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], hear: Callable[[Event], None]) -> None:
        self._connect = connect
        self._hear = hear
        self._is_closed = threading.Event()
        self._waker = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._work, name="store-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()
        os.eventfd_write(self._waker, 1)
        self._thread.join()
        os.close(self._waker)

    def _work(self) -> None:
        pause_s = 0.0
        while not self._is_closed.wait(pause_s):
            try:
                with contextlib.closing(self._connect()) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    if pause_s:
                        _log.warning("the store answers again")
                    pause_s = 0.0
                    self._hear(Event(News.UNKNOWN))
                    self._listen(connection)
            except (StoreAway, psycopg.Error):
                if not pause_s:
                    _log.warning("the store does not answer; trying again until it does")
                pause_s = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        poller = select.poll()
        for descriptor in (connection.fileno(), self._waker):
            poller.register(descriptor, select.POLLIN)
        while not self._is_closed.is_set():
            for notification in connection.notifies(timeout=0):
                self._hear(read(notification.payload))
            poller.poll()
