"""Waiting for verdicts while the client is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from fastapi import Request


@contextlib.asynccontextmanager
async def until_gone(request: Request) -> AsyncGenerator[asyncio.Task[None]]:
    """A task that ends when the client hangs up. The body must have been read."""
    task = asyncio.create_task(_gone(request))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def happens(event: asyncio.Event, gone: asyncio.Task[None], timeout_s: float) -> bool:
    """Wait for the event; False if the time is over. Returns at once when the client is gone."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        waiting.cancel()
