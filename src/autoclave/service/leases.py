"""Jobs of clients that are gone are cancelled, after as long as the client asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator

from autoclave.service.store import Batch

Cancel = Callable[[str], None]


class Leases:
    """Who looks after which batch. For the tasks of one event loop; `cancel` is called in a thread of its own."""

    def __init__(self, cancel: Cancel) -> None:
        self._cancel = cancel
        self._present: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def held(self, batch: Batch) -> Generator[None]:
        """Somebody waits for the batch."""
        if timer := self._timers.pop(batch.id, None):
            timer.cancel()
        self._present[batch.id] = self._present.get(batch.id, 0) + 1
        try:
            yield
        finally:
            self._present[batch.id] -= 1
            if not self._present[batch.id]:
                del self._present[batch.id]
                self.expect(batch)

    def expect(self, batch: Batch) -> None:
        """Nobody waits for the batch; cancel it if that stays so."""
        if batch.keep_s is None or self._is_closed or batch.id in self._present or batch.id in self._timers:
            return
        self._timers[batch.id] = asyncio.get_running_loop().call_later(batch.keep_s, self._give_up, batch.id)

    def close(self) -> None:
        """Cancel nothing any more: clients find the server gone, not the other way round."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _give_up(self, batch: str) -> None:
        self._timers.pop(batch, None)
        task = asyncio.ensure_future(asyncio.to_thread(self._cancel, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
