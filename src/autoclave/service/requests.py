"""Turn requests into jobs, with every check that needs the store or the judge."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fastapi import Request

from autoclave.core import Program, Status
from autoclave.core.json import canonical_json
from autoclave.judge import RunOrder, RunResult, used_by_thread
from autoclave.service.answers import until_disconnect
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, busy, judge_errors_refused, not_found, unknown_problem
from autoclave.service.request_ids import request_id
from autoclave.service.store.records import Batch, JobSpec, KeyReused, StoreUnavailable
from autoclave.service.tokens import Client
from autoclave.service.wire import DEFAULT_PRIORITY, Job, Options


async def accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    """Store and queue the jobs of one request, or raise `Refused`."""
    limit = parts.largest_batch(client)
    if len(jobs) > limit:
        raise bad_input(f"jobs: {len(jobs)} jobs are too many for one request. Fix: send at most {limit}")
    if key is None:  # with a key, the request may have been accepted already
        parts.dispatcher.require_room(client.id, len(jobs))
    return await asyncio.to_thread(_accept, parts, client, jobs, options, key)


def _accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    if options.priority > client.greatest_priority and options.priority != DEFAULT_PRIORITY:
        message = f"priority = {options.priority}: this token allows at most {client.greatest_priority}"
        raise Refused(403, "forbidden", message)
    specs = [spec_of(job) for job in jobs]
    fingerprint = hashlib.sha256()  # of [jobs, priority] as JSON; `deadline_s` shrinks from try to try
    for place, job in enumerate(jobs):  # one at a time, so that other threads run between two
        fingerprint.update((b"," if place else b"[[") + canonical_json(job.model_dump()))
    fingerprint.update(b"],%d]" % options.priority)
    now = time.time()
    batch = Batch(
        secrets.token_urlsafe(15),
        client.id,
        key or secrets.token_urlsafe(15),
        fingerprint.hexdigest(),
        min(options.priority, client.greatest_priority),
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
    options = job.model_dump(exclude={"problem", "source", "id"})
    return JobSpec(job.problem, job.source.encode("utf-8", "surrogatepass"), label=job.id, **options)


def _require_fit(parts: Parts, specs: Sequence[JobSpec]) -> None:
    """Check that every job can be judged here."""
    known = {record.digest: record for record in parts.store.problem_records(sorted({spec.digest for spec in specs}))}
    seen: set[tuple[object, ...]] = set()
    for place, spec in enumerate(specs):
        if spec.digest not in known:
            raise unknown_problem(spec.digest, f"jobs[{place}].")
        require_limits(parts, spec.time_limit_s, spec.memory_limit_mb, f"jobs[{place}].")
        record = known[spec.digest]
        key = (spec.digest, spec.language, spec.profile, spec.time_limit_s, spec.memory_limit_mb)
        if key[1:] != (record.language, None, None, None) and key not in seen:
            problem = parts.problems.get(spec)
            if problem is None:
                raise unknown_problem(spec.digest, f"jobs[{place}].")
            with judge_errors_refused(f"jobs[{place}]: "):
                parts.judge.check(problem)
            seen.add(key)


def require_limits(parts: Parts, time_limit_s: float | None, memory_limit_mb: int | None, where: str = "") -> None:
    """Raise `Refused` if a limit is above the server's."""
    judge, sandbox = parts.config.judge, parts.config.sandbox
    for name, wanted, greatest, setting in (
        ("time_limit_s", time_limit_s, judge.time_limit_range[1], "judge.time_limit_range"),
        ("memory_limit_mb", memory_limit_mb, sandbox.memory_limit_mb, "sandbox.memory_limit_mb"),
    ):
        if wanted is not None and wanted > greatest:
            raise bad_input(f"{where}{name} = {wanted:.10g}: this server allows {greatest:.10g} ({setting})")


def own_batch(parts: Parts, client: Client, id: str) -> Batch:
    """Return a batch of the client, or raise `Refused`: the same for none and for another client's."""
    batch = parts.store.batch(id)
    if batch is None or batch.client != client.id:
        raise not_found("batch")
    return batch


async def run_queued(
    parts: Parts,
    client: Client,
    request: Request,
    program: Program | Sequence[str],
    order: RunOrder,
    *,
    patience_s: float | None = None,
) -> RunResult:
    """Run a program, or the cells of a notebook, once the queue admits it: with small time limits first, then with the
    whole one.

    With `patience_s`, the client gets a response after that time: a run that has not started is refused the first time.
    Its retry waits as long as it must, and meanwhile the route keeps the connection alive.
    Raises `Refused` if the queue is full, the server is shutting down, or the program cannot be run.
    """
    parts.dispatcher.require_accepting()
    queue, loop = parts.run_queue, asyncio.get_running_loop()
    body = (await asyncio.to_thread(hashlib.sha256, await request.body())).digest()
    since, is_retry = queue.first_seen(client.id, body)
    if isinstance(program, Program):
        run, source, language = partial(parts.runner.run, program), program.source, program.language
    else:
        run, source, language = partial(parts.runner.run_notebook, program), json.dumps(program), "python"
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
                    result = await asyncio.to_thread(_charged, parts, client, run, _part_of(order, limit_s))
            reached = result.outcome.ended.limit
            is_late = reached is not None and reached.status is Status.TIME_LIMIT
            if not is_late:
                queue.note(client.id, result.outcome.cpu_s)
            if not is_late or limit_s >= order.time_limit_s:
                text, ended = source.encode("utf-8", "surrogatepass"), result.outcome.ended.value
                parts.audit.note(client.id, "run", source=text, language=language, ended=ended)
                return result
            limit_s = queue.next_limit_s(limit_s, order.time_limit_s)


def _charged(parts: Parts, client: Client, run: Callable[[RunOrder], RunResult], order: RunOrder) -> RunResult:
    """Run and charge all CPU time: of the compiler and of attempts that failed too."""
    before = used_by_thread.cpu_s
    try:
        return run(order)
    finally:
        with contextlib.suppress(StoreUnavailable):  # runs go on without the store
            parts.store.charge((client.id, used_by_thread.cpu_s - before))


def _part_of(order: RunOrder, limit_s: float) -> RunOrder:
    """Return the order of an attempt with a part of the time limit; it may not sleep for long either."""
    if limit_s >= order.time_limit_s:
        return order
    wall_s = 2 * limit_s + 0.25
    return replace(order, time_limit_s=limit_s, wall_limit_s=min(wall_s, order.wall_limit_s or wall_s))


def is_kept_alive(request: Request) -> bool:
    """Return whether the response has begun, so that it cannot be a refusal any more."""
    return getattr(request.state, "is_kept_alive", False)


def decoded(files: Mapping[str, str | None]) -> dict[str, bytes]:
    """Decode the base64 contents of files, or raise `Refused`."""
    contents: dict[str, bytes] = {}
    for number, (path, content) in enumerate(files.items()):
        try:
            contents[path] = base64.b64decode(content or "", validate=True)
        except (binascii.Error, ValueError):
            raise bad_input(f"files: the content of file {number} is not base64") from None
    return contents


def encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: base64.b64encode(content).decode("ascii") for path, content in files.items()}
