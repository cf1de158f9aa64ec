"""Jobs of clients that are gone are cancelled, after as long as the client asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from autoclave.service.store import Batch, Store, StoreAway

_TRY_AGAIN_S = 1.0


class Leases:
    """Who looks after which batch at this node. For the tasks of one event loop; the store knows of all nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._present: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def held(self, batch: Batch) -> AsyncGenerator[None]:
        """Somebody waits for the batch."""
        if timer := self._timers.pop(batch.id, None):
            timer.cancel()
        self._present[batch.id] = self._present.get(batch.id, 0) + 1
        try:
            if batch.keep_s is not None and self._present[batch.id] == 1:
                with contextlib.suppress(StoreAway):  # then it is not known to other nodes
                    await asyncio.to_thread(self._store.watch, batch.id)
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
        self._give_up_after(batch.id, batch.keep_s)

    def close(self) -> None:
        """Cancel nothing any more: clients find the server gone, not the other way round."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _give_up_after(self, batch: str, seconds: float) -> None:
        self._timers[batch] = asyncio.get_running_loop().call_later(seconds, self._give_up, batch)

    def _give_up(self, batch: str) -> None:
        self._timers.pop(batch, None)
        task = asyncio.ensure_future(self._abandon(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _abandon(self, batch: str) -> None:
        try:
            await asyncio.to_thread(self._store.abandon, batch)
        except StoreAway:
            if not self._is_closed and batch not in self._present and batch not in self._timers:
                self._give_up_after(batch, _TRY_AGAIN_S)
