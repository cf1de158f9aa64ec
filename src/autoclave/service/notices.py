"""Who waits for what: tasks of the event loop are woken from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator, Iterable


class Notices:
    """Names that tasks watch. A notice that comes between two looks is not lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextlib.contextmanager
    def watch(self, name: str) -> Generator[asyncio.Event]:
        """An event that is set whenever something happened under `name`; whoever waits clears it before looking."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._watches.setdefault(name, set()).add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._watches[name].discard(entry)
                if not self._watches[name]:
                    del self._watches[name]

    def wake(self, names: Iterable[str]) -> None:
        """Something happened under these names."""
        with self._lock:
            entries = [entry for name in names for entry in self._watches.get(name, ())]
        self._set(entries)

    def wake_all(self) -> None:
        """Something happened that all must know of."""
        with self._lock:
            entries = [entry for watches in self._watches.values() for entry in watches]
        self._set(entries)

    def _set(self, entries: Iterable[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
        for loop, event in entries:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(event.set)
