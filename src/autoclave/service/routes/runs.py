"""Programs without tests, and traces."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated

from fastapi import APIRouter, Depends

from autoclave.core import HostError, InputError, JudgeFault, Outcome, Program, SandboxFault, Trace
from autoclave.judge import JudgeJob
from autoclave.service.access import needs, parts_of
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input
from autoclave.service.requests import mended_apart
from autoclave.service.store import JobSpec
from autoclave.service.tokens import Client, Scope
from autoclave.service.wire import RunAnswer, RunRequest, TraceAnswer, TraceRequest

router = APIRouter(prefix="/v1", tags=["runs"])
_FAULT = "the judge could not run it; nothing follows about the program"


@router.post("/runs")
async def run(
    body: RunRequest, parts: Annotated[Parts, Depends(parts_of)], client: Annotated[Client, needs(Scope.JUDGE)]
) -> RunAnswer:
    """Run one program, sealed, without tests."""
    parts.dispatcher.require_accepting()
    greatest_s = parts.config.judge.time_limit_range[1]
    if body.time_limit_s is not None and body.time_limit_s > greatest_s:
        raise bad_input(f"time_limit_s = {body.time_limit_s:g}: this server allows {greatest_s:g}")
    limit_s = body.time_limit_s or min(parts.config.judge.default_time_limit_s, greatest_s)
    program = Program(body.source, body.language)
    source = body.source.encode("utf-8", "surrogatepass")
    stdin = body.stdin.encode("utf-8", "surrogatepass")
    async with parts.turns:
        try:
            outcome = await asyncio.to_thread(parts.run_program, program, stdin, body.profile, limit_s)
        except HostError as error:
            raise Refused(501, "host", mended_apart(error)) from None
        except InputError as error:
            raise bad_input(str(error)) from None
        except SandboxFault:
            raise Refused(500, "fault", _FAULT) from None
    parts.audit.note(client.id, "run", source=source, language=body.language, ended=outcome.ended.value)
    return _run_answer(outcome, parts.judge.level)


def _run_answer(outcome: Outcome, level: str) -> RunAnswer:
    return RunAnswer(
        ended=outcome.ended.value,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=outcome.stderr.decode("utf-8", "replace"),
        stdout_cut=outcome.stdout_cut,
        stderr_cut=outcome.stderr_cut,
        cpu_s=outcome.cpu_s,
        wall_s=outcome.wall_s,
        memory_mb=outcome.memory_mb,
        detail=outcome.detail,
        level=level,
    )


@router.post("/traces")
async def trace(
    body: TraceRequest,
    parts: Annotated[Parts, Depends(parts_of)],
    client: Annotated[Client, needs(Scope.JUDGE, Scope.TRACES_READ)],
) -> TraceAnswer:
    """Run a program once more on one test, for the final values of its variables."""
    parts.dispatcher.require_accepting()
    if body.is_rehearsal:
        await asyncio.to_thread(_rehearsed, parts, body)
        return TraceAnswer(trace=None)
    async with parts.turns:
        future = await asyncio.to_thread(_begun, parts, body)
        try:
            found = await asyncio.wrap_future(future)
        except JudgeFault:
            raise Refused(500, "fault", _FAULT) from None
    source = body.source.encode("utf-8", "surrogatepass")
    parts.audit.note(client.id, "trace", source=source, problem=body.problem, test=body.test)
    return TraceAnswer(trace=found)


def _begun(parts: Parts, body: TraceRequest) -> Future[Trace]:
    spec = JobSpec(body.problem, body.source.encode("utf-8", "surrogatepass"), body.language, body.id)
    problem = parts.problems.get(spec) if parts.store.problem_records([body.problem]) else None
    if problem is None:
        raise Refused(404, "unknown_problem", f"problem: {body.problem} is not stored here")
    try:
        return parts.judge.trace(JudgeJob(problem, Program(body.source, body.language), body.id), body.test)
    except HostError as error:
        raise Refused(501, "host", mended_apart(error)) from None
    except InputError as error:
        raise bad_input(str(error)) from None


def _rehearsed(parts: Parts, body: TraceRequest) -> None:
    _begun(parts, body).cancel()
