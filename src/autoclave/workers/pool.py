"""A pool of devices, and the thread that calls of its worker groups run on.

Calls of one pool run one after the other in the order they were made, whichever group they belong to; calls of two
pools overlap. Groups of one pool take turns on its devices: before a call to another group than the last, the workers
of that one are told to `offload` and those of this one to `onload`, if they have such methods.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from autoclave.workers.executor import Executor, InlineExecutor
from autoclave.workers.wire import Held

CLOSE_S = 60.0
"""Seconds that running calls may take when their pool is closed; then its workers are killed."""

R = TypeVar("R")


class CallFuture(Future[R]):
    """The result of a call; a result that workers hold is fetched when it is read."""

    def result(self, timeout: float | None = None) -> R:
        value = self.held(timeout)
        return value.fetch() if isinstance(value, Held) else value

    def held(self, timeout: float | None = None) -> Any:
        """The result, or where it is."""
        return super().result(timeout)


@dataclass(frozen=True, slots=True)
class _Call:
    future: Future[Any]
    call: Callable[[], Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.call())
        except BaseException as error:  # noqa: BLE001  raised where the future is read
            self.future.set_exception(error)


_END = _Call(Future(), lambda: None)
"""The last call of a pool."""


class Owner(Protocol):
    """Group that shares the devices of a pool with others. Both are called on the pool's thread."""

    def begin_turn(self) -> None:
        """Move what the workers need onto the devices."""

    def end_turn(self) -> None:
        """Move all that the workers hold off the devices."""


class ResourcePool:
    """Devices that the worker groups placed on them share, and that no other pool has."""

    def __init__(self, name: str, executor: Executor | None = None) -> None:
        """A pool of one rank in this process, or of what `executor` starts; the pool closes it."""
        self.name = name
        self.executor: Executor = executor or InlineExecutor()
        self._owner: Owner | None = None
        self._waiting: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=f"pool-{name}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Run `call` on the pool after everything submitted before it.

        Raises:
            RuntimeError: the pool is closed.
        """
        future: Future[Any] = CallFuture()
        with self._closing:
            if self._is_closed:
                raise RuntimeError(f"pool {self.name} is closed")
            self._waiting.put(_Call(future, call))
        return future

    def give_turn(self, owner: Owner, begin: Callable[[], None] | None = None) -> None:
        """Clear the devices for `owner`, which begins its turn, or does so by `begin`. On the pool's thread."""
        if self._owner is owner and begin is None:
            return
        if self._owner is not None:
            self._owner.end_turn()
            self._owner = None
        (begin or owner.begin_turn)()
        self._owner = owner

    def close(self) -> None:
        """Finish what runs, drop what waits, end the workers and the thread. Does nothing the second time.

        Workers that do not end what runs within `CLOSE_S` are killed; one in this process cannot be, and is left alone.
        """
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait().future.cancel()
        self._waiting.put(_END)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self.executor.kill()
            self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while (call := self._waiting.get()) is not _END:
            call.run()
            del call  # or its result would live until the next one
        self.executor.close()
