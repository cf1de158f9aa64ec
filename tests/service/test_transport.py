"""Requests that are cancelled at any moment leave no connection open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading

import anyio
import httpx
import pytest

from autoclave.service.loop_thread import LoopThread
from autoclave.service.transport import CancellableTransport

NUM_CONNECTIONS = 6


class Server:
    """Answers each connection once, and counts those that are open."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.die()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError):
            while (await reader.readline()).strip():
                pass
            while len(self.writers) < NUM_CONNECTIONS:
                await asyncio.sleep(0)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes")
            await writer.drain()
            await reader.read()

    def die(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=CancellableTransport(httpx.AsyncHTTPTransport()))


async def fill_pool(http: httpx.AsyncClient, url: str) -> None:
    replies = await asyncio.gather(*(http.get(url) for _ in range(NUM_CONNECTIONS)))
    assert [reply.text for reply in replies] == ["yes"] * NUM_CONNECTIONS


async def cancelled_after(num_steps: int, work: asyncio.Task[object]) -> None:
    for _ in range(num_steps):
        await asyncio.sleep(0)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def drop(url: str, http: httpx.AsyncClient) -> None:
    with contextlib.suppress(httpx.HTTPError):
        async with http.stream("GET", url) as reply:
            await reply.aread()


@pytest.mark.parametrize("is_dead", [True, False])
@pytest.mark.parametrize("num_steps", range(24))
def test_a_cancelled_request_leaves_no_connection_open(num_steps: int, is_dead: bool):
    async def scenario() -> None:
        server = Server()
        async with server as url, client() as http:
            await fill_pool(http, url)
            if is_dead:  # all connections of the pool have ended, and the next request closes them
                server.die()
                await asyncio.sleep(0.01)
            await cancelled_after(num_steps, asyncio.ensure_future(drop(url, http)))
        gc.collect()  # an unclosed transport is an error of this test

    asyncio.run(scenario())


def test_an_error_of_the_request_is_raised():
    async def scenario() -> None:
        async with client() as http:
            with pytest.raises(httpx.ConnectError):
                await http.get("http://127.0.0.1:1")

    asyncio.run(scenario())


def test_a_thread_that_closes_lets_requests_close_their_connections():
    begun, closed = threading.Event(), list[bool]()

    class Closing(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            with anyio.CancelScope(shield=True):  # as httpcore closes connections
                begun.set()
                await asyncio.sleep(0.1)
                closed.append(True)
            await asyncio.sleep(60)
            raise AssertionError("it was not cancelled")

    thread, http = LoopThread("requests", "closed"), httpx.AsyncClient(transport=CancellableTransport(Closing()))
    thread.start(http.get("http://any"))
    assert begun.wait(20)
    thread.close(http.aclose)
    assert closed == [True]
