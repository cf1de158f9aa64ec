"""Cancel the jobs of disconnected clients after `keep_s` seconds."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from autoclave.service.store.records import Batch, StoreUnavailable
from autoclave.service.store.sql import Store

_RETRY_S = 1.0


class Leases:
    """Batches whose clients wait at this node. For the tasks of one event loop; the store knows all nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._present: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @contextlib.asynccontextmanager
    async def held(self, batch: Batch) -> AsyncGenerator[None]:
        """Keep the batch while a client waits for it."""
        if timer := self._timers.pop(batch.id, None):
            timer.cancel()
        self._present[batch.id] = self._present.get(batch.id, 0) + 1
        try:
            if batch.keep_s is not None and self._present[batch.id] == 1:
                with contextlib.suppress(StoreUnavailable):  # then other nodes do not see the client
                    await asyncio.to_thread(self._store.watch, batch.id)
            yield
        finally:
            self._present[batch.id] -= 1
            if not self._present[batch.id]:
                del self._present[batch.id]
                self.expect(batch)

    def expect(self, batch: Batch) -> None:
        """Cancel the batch after its `keep_s`, unless a client waits for it by then."""
        if batch.keep_s is not None:
            self._cancel_after(batch.id, batch.keep_s)

    def close(self) -> None:
        """Stop all timers: when the server goes away, batches stay."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _cancel_after(self, batch: str, seconds: float) -> None:
        if not self._is_closed and batch not in self._present and batch not in self._timers:
            self._timers[batch] = asyncio.get_running_loop().call_later(seconds, self._timed_out, batch)

    def _timed_out(self, batch: str) -> None:
        self._timers.pop(batch, None)
        task = asyncio.ensure_future(self._abandon(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _abandon(self, batch: str) -> None:
        try:
            await asyncio.to_thread(self._store.abandon, batch)
        except StoreUnavailable:
            self._cancel_after(batch, _RETRY_S)
