"""Routes of jobs and batches: submit, get, wait, stream, cancel."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from autoclave.service.access import Judging, JudgingRoute, PartsDep
from autoclave.service.answers import NDJSON, FollowedBatch, batch_answer, plain_job, wait_for
from autoclave.service.parts import Parts
from autoclave.service.refusals import not_found
from autoclave.service.requests import accept, own_batch
from autoclave.service.store.records import Batch, JobState
from autoclave.service.tokens import Client
from autoclave.service.wire import BatchAnswer, BatchRequest, Cancelled, Job, JobAnswer, JobRequest, Options, Wait

router = APIRouter(prefix="/v1", tags=["judging"], route_class=JudgingRoute)
Identity = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", examples=["hq9J2mS0yYx3bQnUqk1b"])]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern="^[\\x21-\\x7e]{1,200}$",
        description="A repeated request with the same key is accepted once, and gets the same batch.",
    ),
]
After = Annotated[
    int, Query(ge=0, le=2**62, description="Return only jobs that ended after the one with this sequence number.")
]
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A line per verdict as it arrives; the last one is `end`.",
        "content": {NDJSON: {"schema": {"type": "string"}}},
    }
}


@router.post("/jobs", response_model=JobAnswer, responses={202: {"model": JobAnswer, "description": "Accepted."}})
async def judge_one(body: JobRequest, request: Request, parts: PartsDep, client: Judging, key: Key = None) -> Response:
    """Judge one program: returns the verdict if it arrives within `wait_s` seconds (200), else the state (202)."""
    job = Job.model_validate(body.model_dump(include=set(Job.model_fields)))
    options = _options(body, is_waiting=body.wait_s > 0)
    batch = await accept(parts, client, [job], options, key)
    try:
        state = (await asyncio.to_thread(parts.store.jobs_of, batch.id))[0]
        return _job_response(await wait_for(parts, request, batch, state.id, body.wait_s))
    finally:
        parts.leases.expect(batch)


@router.get("/jobs/{job}", response_model=JobAnswer, responses={202: {"model": JobAnswer, "description": "Not yet."}})
async def look_at_job(
    job: Identity,
    request: Request,
    parts: PartsDep,
    client: Judging,
    wait_s: Annotated[Wait, Query(description="Seconds to wait for the verdict.")] = 0.0,
) -> Response:
    """Get the state of a job, with the verdict once it is done."""
    batch, state = await asyncio.to_thread(_own_job, parts, client, job)
    if wait_s and state.sequence is None:
        state = await wait_for(parts, request, batch, job, wait_s)
    return _job_response(state)


@router.delete("/jobs/{job}")
async def cancel_job(job: Identity, parts: PartsDep, client: Judging) -> Cancelled:
    """Cancel a job. A job that has ended does not change."""
    await asyncio.to_thread(_own_job, parts, client, job)
    return Cancelled(cancelled=len(await asyncio.to_thread(parts.store.cancel, [job])))


@router.post("/batches", response_model=BatchAnswer, status_code=202, responses=_STREAM)
async def judge_many(
    body: BatchRequest,
    request: Request,
    parts: PartsDep,
    client: Judging,
    key: Key = None,
    accept_header: Annotated[str, Header(alias="Accept", include_in_schema=False)] = "",
) -> Response:
    """Judge many programs. With `Accept: application/x-ndjson` the response is a stream."""
    is_stream = NDJSON in accept_header
    batch = await accept(parts, client, body.jobs, _options(body, is_waiting=is_stream), key)
    if is_stream:
        return FollowedBatch(parts, request, batch, 0)
    answer = await asyncio.to_thread(batch_answer, parts, batch)
    return JSONResponse(answer.model_dump(mode="json"), 202)


@router.get("/batches/{batch}")
async def look_at_batch(batch: Identity, parts: PartsDep, client: Judging) -> BatchAnswer:
    """Get the state of a batch."""
    return await asyncio.to_thread(lambda: batch_answer(parts, own_batch(parts, client, batch)))


@router.get("/batches/{batch}/stream", response_class=StreamingResponse, responses=_STREAM)
async def stream_batch(
    batch: Identity, request: Request, parts: PartsDep, client: Judging, after: After = 0
) -> Response:
    """Stream the verdicts of a batch, those that exist first."""
    return FollowedBatch(parts, request, await asyncio.to_thread(own_batch, parts, client, batch), after)


@router.delete("/batches/{batch}")
async def cancel_batch(batch: Identity, parts: PartsDep, client: Judging) -> Cancelled:
    """Cancel all jobs of a batch that have not ended."""

    def cancel() -> int:
        found = own_batch(parts, client, batch)
        left = [state.id for state in parts.store.jobs_of(found.id) if state.sequence is None]
        return len(parts.store.cancel(left))

    return Cancelled(cancelled=await asyncio.to_thread(cancel))


def _own_job(parts: Parts, client: Client, job: str) -> tuple[Batch, JobState]:
    state = parts.store.job(job)
    batch = None if state is None else parts.store.batch(state.batch)
    if state is None or batch is None or state.client != client.id:
        raise not_found("job")
    return batch, state


def _options(body: Options, *, is_waiting: bool) -> Options:
    keep_s = 0.0 if is_waiting and "keep_s" not in body.model_fields_set else body.keep_s
    return Options(priority=body.priority, deadline_s=body.deadline_s, keep_s=keep_s)


def _job_response(state: JobState) -> Response:
    return JSONResponse(plain_job(state), 200 if state.sequence is not None else 202)
