"""An event loop in a thread of its own, for those who are called from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Step = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs coroutines of any thread. Not to be waited for in the loop itself."""

    def __init__(self, name: str, closed: str) -> None:
        """`closed`: what whoever comes too late is told."""
        self._closed = closed
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def time(self) -> float:
        """The clock of the loop, in seconds."""
        return self._loop.time()

    def require_open(self) -> None:
        """Raises RuntimeError after `close`."""
        if self._is_closed:
            raise RuntimeError(self._closed)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work`; cancelling the future cancels it.

        Raises:
            RuntimeError: after `close`.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise RuntimeError(self._closed)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises."""
        return self.start(work).result()

    def soon(self, call: Callable[[], object]) -> None:
        """Have the loop call it.

        Raises:
            RuntimeError: after `close`.
        """
        with self._lock:
            self.require_open()
            self._loop.call_soon_threadsafe(call)

    def close(self, last: Step, *, first: Step | None = None) -> None:
        """Do `first`, cancel all work and let it end, and do `last`, when nothing else runs; then end the thread.

        So nothing is opened once `last` closes what work has open.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end(last, first), self._loop)
        try:
            ending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self, last: Step, first: Step | None) -> None:
        if first:
            await first()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await last()
        await self._loop.shutdown_asyncgens()
