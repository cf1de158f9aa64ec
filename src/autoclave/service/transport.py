"""Transport of asynchronous HTTP clients whose tasks may be cancelled at any moment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
import httpx

T = TypeVar("T")
REQUEST = "http-request"
"""Name of the tasks of requests. They end with the task that waits for them, and must not be cancelled themselves."""


class CancellableTransport(httpx.AsyncBaseTransport):
    """Lets the connection pool close what it has begun to close, however the task of a request is cancelled.

    httpcore takes expired connections out of its pool and then closes them, one await each, in a scope of anyio that
    shields from cancellation. `Task.cancel` passes through such a scope (httpcore 1.0, anyio 4.16), and the connections
    that were left stayed open. So each request runs in a task of its own, which is cancelled by a scope of anyio.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        reply = await _cancelled_by_scope(partial(self._inner.handle_async_request, request))
        assert isinstance(reply.stream, httpx.AsyncByteStream)
        reply.stream = _Stream(reply.stream)
        return reply

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Stream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        await _cancelled_by_scope(self._inner.aclose)


async def _cancelled_by_scope(work: Callable[[], Awaitable[T]]) -> T:
    scope = anyio.CancelScope()

    async def run() -> T:
        with scope:
            return await work()
        raise asyncio.CancelledError  # the scope has taken it

    task = asyncio.create_task(run(), name=REQUEST)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        scope.cancel()
        (found,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(found, httpx.Response):  # it was there at the moment of the cancellation
            await found.aclose()
        raise
