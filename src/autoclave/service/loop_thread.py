"""An event loop in its own thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from autoclave.service.transport import REQUEST

T = TypeVar("T")
Step = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """Runs coroutines for other threads. The loop itself must not wait for it."""

    def __init__(self, name: str, closed: str) -> None:
        """Start the thread. `closed` is the message of the error after `close`."""
        self._closed = closed
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def time(self) -> float:
        return self._loop.time()

    def require_open(self) -> None:
        """Raise RuntimeError after `close`."""
        if self._is_closed:
            raise RuntimeError(self._closed)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`; cancelling the future cancels it. Raises RuntimeError after `close`."""
        with self._lock:
            if self._is_closed:
                work.close()
                raise RuntimeError(self._closed)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result()

    def soon(self, call: Callable[[], object]) -> None:
        """Call a function in the loop. Raises RuntimeError after `close`."""
        with self._lock:
            self.require_open()
            self._loop.call_soon_threadsafe(call)

    def close(self, last: Step, *, first: Step | None = None) -> None:
        """Run `first`, cancel all tasks and wait for them, run `last`, and end the thread.

        No task is left that could open a connection after `last` has closed them.
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
        others = {task for task in asyncio.all_tasks() if task.get_name() != REQUEST} - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()  # streams that a cancelled task left return their connections here
        await last()


class Notices:
    """Events by name. A notice that arrives between two waits is not lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    @contextlib.contextmanager
    def watch(self, name: str) -> Generator[asyncio.Event]:
        """Yield an event that is set by each notice for `name`; the task clears it before it reads the state."""
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

    def wake(self, name: str | None = None) -> None:
        """Set the events for a name, or all."""
        with self._lock:
            names = list(self._watches) if name is None else [name]
            entries = [entry for name in names for entry in self._watches.get(name, ())]
        for loop, event in entries:
            with contextlib.suppress(RuntimeError):  # the loop is closed, with all its tasks
                loop.call_soon_threadsafe(event.set)
