"""How jobs and batches are told, alone or as a stream."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from autoclave.service.leases import Leases
from autoclave.service.parts import Parts
from autoclave.service.presence import happens, until_gone
from autoclave.service.refusals import not_found
from autoclave.service.store import Batch, JobState, StoreAway, counts_of
from autoclave.service.wire import BatchAnswer

NDJSON, EVENTS = "application/x-ndjson", "text/event-stream"
_HEARTBEAT_S = 5.0


def plain_job(state: JobState) -> dict[str, Any]:
    """`JobAnswer`, with the verdict as it is stored."""
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
    """Where a batch stands. Blocks."""
    states = parts.store.jobs_of(batch.id)
    return BatchAnswer(batch=batch.id, jobs=[state.id for state in states], counts=counts_of(states))


class FollowedBatch(StreamingResponse):
    """The stream of a batch. A client that is gone before it begins is one that hangs up, too."""

    def __init__(self, parts: Parts, leases: Leases, request: Request, batch: Batch, after: int, form: str) -> None:
        super().__init__(stream(parts, leases, request, batch, after, form), media_type=form)
        self._leases, self._batch = leases, batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leases.expect(self._batch)


async def stream(
    parts: Parts, leases: Leases, request: Request, batch: Batch, after: int, form: str
) -> AsyncGenerator[bytes]:
    """What happens to a batch: first where it stands, then each job as it ends, and `end` when all have.

    Without an `end` the stream broke off, or the server is about to end; ask again, with `after`.
    """
    async with leases.held(batch), until_gone(request) as gone:
        with parts.notices.watch(batch.id) as changed:
            answer = await asyncio.to_thread(batch_answer, parts, batch)
            yield _event(form, "batch", answer.model_dump(mode="json"), None)
            while not gone.done():
                changed.clear()
                is_finished = False  # while the store is away the client stays, and hears that we are here
                with contextlib.suppress(StoreAway):
                    is_finished, ended, after = await asyncio.to_thread(_news_of, parts, batch, after, form)
                    if ended:
                        yield ended
                if is_finished:
                    yield _event(form, "end", {}, None)
                    return
                if parts.is_stopping.is_set():
                    return
                if not await happens(changed, gone, _HEARTBEAT_S):
                    yield b"\n" if form == NDJSON else b":\n\n"


def _news_of(parts: Parts, batch: Batch, after: int, form: str) -> tuple[bool, bytes, int]:
    """Whether all jobs of a batch have ended; the events of those that ended after that one, and the last. Blocks."""
    is_finished = parts.store.is_finished(batch.id)
    ended = parts.store.ended(batch.id, after)
    text = b"".join(_event(form, "job", plain_job(state), state.sequence) for state in ended)
    return is_finished, text, max((state.sequence or 0 for state in ended), default=after)


def _event(form: str, kind: str, data: dict[str, Any], sequence: int | None) -> bytes:
    if form == NDJSON:
        return json.dumps({"event": kind, **data}, separators=(",", ":")).encode() + b"\n"
    number = "" if sequence is None else f"id: {sequence}\n"
    return f"event: {kind}\n{number}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


async def wait_for(parts: Parts, leases: Leases, request: Request, batch: Batch, id: str, wait_s: float) -> JobState:
    """Where a job of the batch stands once it has ended, the time is over, or the client is gone."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    async with leases.held(batch), until_gone(request) as gone:
        with parts.notices.watch(batch.id) as changed:
            while True:
                changed.clear()
                left_s = until - loop.time()
                is_last = left_s <= 0 or gone.done() or parts.is_stopping.is_set()
                try:
                    state = await asyncio.to_thread(parts.store.job, id)
                except StoreAway:
                    if is_last:
                        raise
                else:
                    if state is None:  # its time is over
                        raise not_found("job")
                    if state.sequence is not None or is_last:
                        return state
                await happens(changed, gone, min(left_s, _HEARTBEAT_S))
