"""Turn requests into jobs, with every check that needs the store or the judge."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fastapi import Request

from autoclave.core import Status
from autoclave.core.json import canonical_json
from autoclave.judge import RunOrder, RunResult
from autoclave.service.answers import until_disconnect
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, busy, judge_errors_refused, not_found
from autoclave.service.request_ids import request_id
from autoclave.service.store.records import Batch, JobSpec, KeyReused, StoreUnavailable
from autoclave.service.tokens import Client
from autoclave.service.wire import Job, Options


async def accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    """Store and queue the jobs of one request.

    Raises:
        Refused: a job cannot be judged here, the queue is full, or the key belongs to another request.
    """
    limit = parts.config.admission.largest_batch
    if len(jobs) > limit:
        raise bad_input(f"jobs: {len(jobs)} jobs are too many for one request. Fix: send at most {limit}")
    if key is None:  # with a key, the request may have been accepted already
        parts.dispatcher.require_room(client.id, len(jobs))
    return await asyncio.to_thread(_accept, parts, client, jobs, options, key)


def _accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    if options.priority > client.greatest_priority:
        message = f"priority = {options.priority}: this token allows at most {client.greatest_priority}"
        raise Refused(403, "forbidden", message)
    specs = [spec_of(job) for job in jobs]
    fingerprint = hashlib.sha256(
        canonical_json([[job.model_dump() for job in jobs], options.priority])  # `deadline_s` shrinks from try to try
    ).hexdigest()
    now = time.time()
    batch = Batch(
        secrets.token_urlsafe(15),
        client.id,
        key or secrets.token_urlsafe(15),
        fingerprint,
        options.priority,
        now,
        None if options.deadline_s is None else now + options.deadline_s,
        options.keep_s,
        request_id.get(),
    )
    if key is None or parts.store.batch_of_key(client.id, key) is None:
        parts.dispatcher.require_room(client.id, len(jobs))
        _require_fit(parts, specs)
    try:
        accepted = parts.dispatcher.accept(batch, specs, client.limits.queue)
    except KeyReused:
        raise Refused(409, "conflict", "the idempotency key was used for another request. Fix: use a new one") from None
    if accepted.id == batch.id:
        for spec in specs:
            parts.audit.note(
                client.id, "judge", source=spec.source, problem=spec.digest, language=spec.language, batch=batch.id
            )
    return accepted


def spec_of(job: Job) -> JobSpec:
    return JobSpec(
        digest=job.problem,
        source=job.source.encode("utf-8", "surrogatepass"),
        language=job.language,
        label=job.id,
        tests=job.tests,
        stop_at_failure=job.stop_at_failure,
        profile=job.profile,
        time_limit_s=job.time_limit_s,
        memory_limit_mb=job.memory_limit_mb,
    )


def _require_fit(parts: Parts, specs: Sequence[JobSpec]) -> None:
    """Check that every job can be judged here."""
    known = {record.digest: record for record in parts.store.problem_records(sorted({spec.digest for spec in specs}))}
    seen: set[tuple[object, ...]] = set()
    for place, spec in enumerate(specs):
        if spec.digest not in known:
            raise Refused(404, "unknown_problem", f"jobs[{place}].problem: {spec.digest} is not stored here")
        _require_limits(parts, spec, place)
        record = known[spec.digest]
        key = (spec.digest, spec.language, spec.profile, spec.time_limit_s, spec.memory_limit_mb)
        if key[1:] != (record.language, None, None, None) and key not in seen:
            require_judgeable(parts, spec, f"jobs[{place}]")
            seen.add(key)


def _require_limits(parts: Parts, spec: JobSpec, place: int) -> None:
    greatest_s, greatest_mb = parts.config.judge.time_limit_range[1], parts.config.sandbox.memory_limit_mb
    if spec.time_limit_s is not None and spec.time_limit_s > greatest_s:
        raise bad_input(f"jobs[{place}].time_limit_s = {spec.time_limit_s:g}: this server allows {greatest_s:g}")
    if spec.memory_limit_mb is not None and spec.memory_limit_mb > greatest_mb:
        raise bad_input(f"jobs[{place}].memory_limit_mb = {spec.memory_limit_mb}: this server allows {greatest_mb}")


def require_judgeable(parts: Parts, spec: JobSpec, where: str) -> None:
    """Check a stored problem with the judge.

    Raises:
        Refused: it is not stored, or cannot be judged.
    """
    problem = parts.problems.get(spec)
    if problem is None:
        raise Refused(404, "unknown_problem", f"{where}.problem: {spec.digest} is not stored here")
    with judge_errors_refused(f"{where}: "):
        parts.judge.check(problem)


def own_batch(parts: Parts, client: Client, id: str) -> Batch:
    """Return a batch of the client.

    Raises:
        Refused: it does not exist or belongs to another client; the response is the same.
    """
    batch = parts.store.batch(id)
    if batch is None or batch.client != client.id:
        raise not_found("batch")
    return batch


async def run_queued(
    parts: Parts,
    client: Client,
    request: Request,
    run: Callable[[RunOrder], RunResult],
    order: RunOrder,
    *,
    patience_s: float | None = None,
) -> RunResult:
    """Call `run` in a thread once the queue admits it: with small time limits first, then with the whole one.

    With `patience_s`, the client gets a response after that time: a run that has not started is refused the first time.
    Its retry waits as long as it must, and meanwhile the route keeps the connection alive.

    Raises:
        Refused: the queue is full, the server is shutting down, or the program cannot be run.
    """
    parts.dispatcher.require_accepting()
    queue, loop = parts.run_queue, asyncio.get_running_loop()
    body = hashlib.sha256(await request.body()).digest()
    since, is_retry = queue.first_seen(client.id, body)
    silent_until = None if patience_s is None else loop.time() + patience_s
    start_by = None if is_retry else silent_until
    if patience_s is None:
        queue.require_room(client.id, body)
    limit_s = queue.first_limit_s(client.id, order.time_limit_s)
    async with until_disconnect(request) as disconnected:
        while True:
            request.state.silent_until = silent_until if start_by is None else None
            async with contextlib.AsyncExitStack() as inside:
                try:
                    async with asyncio.timeout_at(start_by):
                        place = queue.place(client.id, limit_s, disconnected, since, lambda: is_kept_alive(request))
                        await inside.enter_async_context(place)
                except TimeoutError:
                    queue.remember(client.id, body)
                    raise busy("too many runs wait. Fix: retry later", 1.0) from None
                request.state.silent_until, start_by = silent_until, None
                with judge_errors_refused():
                    result = await asyncio.to_thread(run, _part_of(order, limit_s))
                with contextlib.suppress(StoreUnavailable):  # runs go on without the store
                    await asyncio.to_thread(parts.store.charge, {client.id: result.outcome.cpu_s})
            reached = result.outcome.ended.limit
            if reached is None or reached.status is not Status.TIME_LIMIT:
                queue.note(client.id, result.outcome.cpu_s)
                return result
            if limit_s >= order.time_limit_s:
                return result
            limit_s = queue.next_limit_s(limit_s, order.time_limit_s)


def _part_of(order: RunOrder, limit_s: float) -> RunOrder:
    """Return the order of an attempt with a part of the time limit; it may not sleep for long either."""
    if limit_s >= order.time_limit_s:
        return order
    wall_s = 2 * limit_s + 0.25
    return replace(order, time_limit_s=limit_s, wall_limit_s=min(wall_s, order.wall_limit_s or wall_s))


def is_kept_alive(request: Request) -> bool:
    """Return whether the response has begun, so that it cannot be a refusal any more."""
    return getattr(request.state, "is_kept_alive", False)


def time_limit_of(parts: Parts, wanted_s: float | None) -> float:
    """Return the time limit of a run in CPU seconds.

    Raises:
        Refused: the requested limit is above the server's.
    """
    greatest_s = parts.config.judge.time_limit_range[1]
    if wanted_s is not None and wanted_s > greatest_s:
        raise bad_input(f"time_limit_s = {wanted_s:g}: this server allows {greatest_s:g} (judge.time_limit_range)")
    return wanted_s or min(parts.config.judge.default_time_limit_s, greatest_s)


def require_memory(parts: Parts, wanted_mb: float | None) -> None:
    """Check a requested memory limit.

    Raises:
        Refused: it is above the server's.
    """
    greatest_mb = parts.config.sandbox.memory_limit_mb
    if wanted_mb is not None and wanted_mb > greatest_mb:
        raise bad_input(f"memory_limit_mb = {wanted_mb:g}: this server allows {greatest_mb} (sandbox.memory_limit_mb)")


def decoded(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Decode the base64 contents of files.

    Raises:
        Refused: a content is not base64.
    """
    contents: dict[str, bytes] = {}
    for number, (path, content) in enumerate(files.items()):
        try:
            contents[path] = base64.b64decode(content or "", validate=True)
        except (binascii.Error, ValueError):
            raise bad_input(f"files: the content of file {number} is not base64") from None
    return contents


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: base64.b64encode(content).decode("ascii") for path, content in files.items()}
