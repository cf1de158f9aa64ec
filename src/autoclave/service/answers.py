"""Responses about jobs and batches, single or as a stream."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from autoclave.service.parts import Parts
from autoclave.service.refusals import not_found
from autoclave.service.store.records import Batch, JobState, StoreUnavailable
from autoclave.service.wire import BatchAnswer

NDJSON = "application/x-ndjson"
_HEARTBEAT_S = 5.0


def plain_job(state: JobState) -> dict[str, Any]:
    """Return a `JobAnswer` as JSON, with the verdict as it is stored."""
    return {
        "job": state.id,
        "batch": state.batch,
        "place": state.place,
        "id": state.label,
        "state": state.state,
        "sequence": state.sequence,
        "verdict": None if state.verdict is None else json.loads(state.verdict),
    }


def batch_answer(parts: Parts, batch: Batch) -> BatchAnswer:
    """Return the state of a batch. Blocks."""
    states = parts.store.jobs_of(batch.id)
    return BatchAnswer(
        batch=batch.id, jobs=[state.id for state in states], counts=Counter(state.state for state in states)
    )


class FollowedBatch(StreamingResponse):
    """Stream of a batch. A client that disconnects before it begins counts as disconnected too."""

    def __init__(self, parts: Parts, request: Request, batch: Batch, after: int) -> None:
        super().__init__(stream(parts, request, batch, after), media_type=NDJSON)
        self._leases, self._batch = parts.leases, batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leases.expect(self._batch)


async def stream(parts: Parts, request: Request, batch: Batch, after: int) -> AsyncGenerator[bytes]:
    """Yield the events of a batch: its state, each job as it ends, and `end` after the last one.

    Without an `end`, the connection broke or the server is shutting down; the client continues with `after`.
    """
    async with parts.leases.held(batch), until_disconnect(request) as disconnected:
        with parts.notices.watch(batch.id) as changed:
            answer = await asyncio.to_thread(batch_answer, parts, batch)
            yield _event("batch", answer.model_dump(mode="json"))
            while not disconnected.done():
                changed.clear()
                is_finished = False  # while the store is unavailable, heartbeats keep the client
                with contextlib.suppress(StoreUnavailable):
                    is_finished, ended, after = await asyncio.to_thread(_ended_since, parts, batch, after)
                    if ended:
                        yield ended
                if is_finished:
                    yield _event("end", {})
                    return
                if parts.is_stopping.is_set():
                    return
                if not await wait_or_disconnect(changed, disconnected, _HEARTBEAT_S):
                    yield b"\n"


def _ended_since(parts: Parts, batch: Batch, after: int) -> tuple[bool, bytes, int]:
    """Return whether all jobs have ended, the events after sequence number `after`, and the last number. Blocks."""
    is_finished = parts.store.is_finished(batch.id)
    ended = parts.store.ended(batch.id, after)
    text = b"".join(_event("job", plain_job(state)) for state in ended)
    return is_finished, text, max((state.sequence or 0 for state in ended), default=after)


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return json.dumps({"event": kind, **data}, separators=(",", ":")).encode() + b"\n"


async def wait_for(parts: Parts, request: Request, batch: Batch, id: str, wait_s: float) -> JobState:
    """Return the state of a job once it has ended, `wait_s` is over, or the client has disconnected."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    async with parts.leases.held(batch), until_disconnect(request) as disconnected:
        with parts.notices.watch(batch.id) as changed:
            while True:
                changed.clear()
                left_s = until - loop.time()
                is_last = left_s <= 0 or disconnected.done() or parts.is_stopping.is_set()
                try:
                    state = await asyncio.to_thread(parts.store.job, id)
                except StoreUnavailable:
                    if is_last:
                        raise
                else:
                    if state is None:  # it was purged
                        raise not_found("job")
                    if state.sequence is not None or is_last:
                        return state
                await wait_or_disconnect(changed, disconnected, min(left_s, _HEARTBEAT_S))


@contextlib.asynccontextmanager
async def until_disconnect(request: Request) -> AsyncGenerator[asyncio.Task[None]]:
    """Yield a task that ends when the client disconnects. The body must have been read."""
    task = asyncio.create_task(_disconnected(request))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def wait_or_disconnect(event: asyncio.Event, disconnected: asyncio.Task[None], timeout_s: float) -> bool:
    """Wait for the event; return False after `timeout_s`, or at once when the client disconnects."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, disconnected}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        waiting.cancel()
