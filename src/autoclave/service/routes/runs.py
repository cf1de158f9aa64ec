"""Routes of runs without tests, and of traces."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

from fastapi import APIRouter, Request

from autoclave.core import Program
from autoclave.judge import JudgeJob, RunOrder, RunResult
from autoclave.service.access import Judging, PartsDep, needs
from autoclave.service.answers import until_disconnect
from autoclave.service.parts import Parts
from autoclave.service.refusals import judge_errors_refused, unknown_problem
from autoclave.service.requests import decoded, encoded, require_limits, run_queued
from autoclave.service.store.records import JobSpec, StoreUnavailable
from autoclave.service.tokens import Client, Scope
from autoclave.service.wire import RunAnswer, RunRequest, TraceAnswer, TraceRequest

router = APIRouter(prefix="/v1", tags=["runs"])
T = TypeVar("T")


@router.post("/runs")
async def run(body: RunRequest, request: Request, parts: PartsDep, client: Judging) -> RunAnswer:
    """Run one program in a sealed cell, without tests."""
    require_limits(parts, body.time_limit_s, body.memory_limit_mb)
    judge = parts.config.judge
    order = RunOrder(
        body.stdin.encode("utf-8", "surrogatepass"),
        decoded(body.files),
        body.fetch_files,
        body.wants_value,
        body.profile,
        body.time_limit_s or min(judge.default_time_limit_s, judge.time_limit_range[1]),
        memory_limit_mb=body.memory_limit_mb,
    )
    result = await run_queued(parts, client, request, Program(body.source, body.language), order)
    return _run_answer(result, parts.judge.level)


def _run_answer(result: RunResult, level: str) -> RunAnswer:
    fields = asdict(result.outcome)
    texts = {name: fields[name].decode("utf-8", "replace") for name in ("stdout", "stderr")}
    return RunAnswer(
        **{name: fields[name] for name in RunAnswer.model_fields if name in fields} | texts,
        level=level,
        value=result.value and result.value.encode("utf-8", "replace").decode(),
        value_cut=result.value_cut,
        files=encoded(result.files),
    )


@router.post("/traces")
async def trace(
    body: TraceRequest,
    request: Request,
    parts: PartsDep,
    client: Annotated[Client, needs(Scope.JUDGE, Scope.TRACES_READ)],
) -> TraceAnswer:
    """Run a program on one test and return the final values of its variables."""
    parts.dispatcher.require_accepting()
    if body.check_only:
        await asyncio.to_thread(_prepared, parts, body, parts.judge.check_trace)
        return TraceAnswer(trace=None)
    parts.run_queue.require_room(client.id, b"")
    limit_s = parts.config.judge.time_limit_range[1]
    async with until_disconnect(request) as gone, parts.run_queue.place(client.id, limit_s, gone):
        future = await asyncio.to_thread(_prepared, parts, body, parts.judge.trace)
        begun = time.monotonic()
        with judge_errors_refused():
            found = await asyncio.wrap_future(future)
        with contextlib.suppress(StoreUnavailable):
            used_s = min(time.monotonic() - begun, limit_s)
            await asyncio.to_thread(parts.store.charge, (client.id, used_s))
    source = body.source.encode("utf-8", "surrogatepass")
    parts.audit.note(client.id, "trace", source=source, problem=body.problem, test=body.test)
    return TraceAnswer(trace=found)


def _prepared(parts: Parts, body: TraceRequest, then: Callable[[JudgeJob, int], T]) -> T:
    """Return what `then` makes of the job and the test, or raise `Refused`."""
    spec = JobSpec(body.problem, body.source.encode("utf-8", "surrogatepass"), body.language, body.id)
    problem = parts.problems.get(spec) if parts.store.problem_records([body.problem]) else None
    if problem is None:
        raise unknown_problem(body.problem)
    with judge_errors_refused():
        return then(JudgeJob(problem, Program(body.source, body.language), body.id), body.test)
