"""From requests to what the dispatcher takes, with every check that needs the store or the judge."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Sequence

from autoclave.core import HostError, InputError
from autoclave.core.json import canonical_json
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, not_found
from autoclave.service.store import Batch, JobSpec, KeyReused
from autoclave.service.tokens import Client
from autoclave.service.wire import Job, Options


async def accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    """Make the jobs of one request durable.

    Raises:
        Refused: a job cannot be judged here, there is no room, or the key belongs to another request.
    """
    limit = parts.config.admission.largest_batch
    if len(jobs) > limit:
        raise bad_input(f"jobs: {len(jobs)} are too many for one request; send at most {limit}")
    if key is None:  # else it may be there already
        parts.dispatcher.require_room(client.id, len(jobs))
    return await asyncio.to_thread(_accept, parts, client, jobs, options, key)


def _accept(parts: Parts, client: Client, jobs: Sequence[Job], options: Options, key: str | None) -> Batch:
    is_new = key is None or parts.store.batch_of_key(client.id, key) is None
    if is_new:
        parts.dispatcher.require_room(client.id, len(jobs))
    specs = [spec_of(job) for job in jobs]
    fingerprint = hashlib.sha256(
        canonical_json([[job.model_dump() for job in jobs], options.priority])  # a deadline draws nearer
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
    )
    if is_new:
        _require_fit(parts, specs)
    try:
        accepted = parts.dispatcher.accept(batch, specs)
    except KeyReused:
        raise Refused(409, "conflict", "the idempotency key was used for another request; take a new one") from None
    if accepted.id == batch.id:
        for spec in specs:
            parts.audit.note(
                client.id, "judge", source=spec.source, problem=spec.digest, language=spec.language, batch=batch.id
            )
    return accepted


def spec_of(job: Job) -> JobSpec:
    """The job as the store keeps it."""
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
    """Check that every job can be judged here.

    Raises:
        Refused: a problem is not there, or the judge cannot judge it so.
    """
    known = {record.digest: record for record in parts.store.problem_records(sorted({spec.digest for spec in specs}))}
    seen: set[tuple[object, ...]] = set()
    for place, spec in enumerate(specs):
        if spec.digest not in known:
            raise Refused(404, "unknown_problem", f"jobs[{place}].problem: {spec.digest} is not stored here")
        _require_limits(parts, spec, place)
        record = known[spec.digest]
        way = (spec.digest, spec.language, spec.profile, spec.time_limit_s, spec.memory_limit_mb)
        if way[1:] != (record.language, None, None, None) and way not in seen:
            require_judgeable(parts, spec, f"jobs[{place}]")
            seen.add(way)


def _require_limits(parts: Parts, spec: JobSpec, place: int) -> None:
    greatest_s, greatest_mb = parts.config.judge.time_limit_range[1], parts.config.sandbox.memory_limit_mb
    if spec.time_limit_s is not None and spec.time_limit_s > greatest_s:
        raise bad_input(f"jobs[{place}].time_limit_s = {spec.time_limit_s:g}: this server allows {greatest_s:g}")
    if spec.memory_limit_mb is not None and spec.memory_limit_mb > greatest_mb:
        raise bad_input(f"jobs[{place}].memory_limit_mb = {spec.memory_limit_mb}: this server allows {greatest_mb}")


def require_judgeable(parts: Parts, spec: JobSpec, where: str) -> None:
    """Check a stored problem with the judge.

    Raises:
        Refused: it is not there, or cannot be judged.
    """
    problem = parts.problems.get(spec)
    if problem is None:
        raise Refused(404, "unknown_problem", f"{where}.problem: {spec.digest} is not stored here")
    try:
        parts.judge.check(problem)
    except HostError as error:
        raise Refused(501, "host", f"{where}: {repaired_apart(error)}") from None
    except InputError as error:
        raise bad_input(f"{where}: {error}") from None


def repaired_apart(error: HostError) -> str:
    """What a machine lacks, without the fix, which is for its owner."""
    return str(error).partition(" Fix:")[0]


def own_batch(parts: Parts, client: Client, id: str) -> Batch:
    """The batch of that id, if it belongs to the client.

    Raises:
        Refused: there is none, or it is somebody else's; nobody can tell which.
    """
    batch = parts.store.batch(id)
    if batch is None or batch.client != client.id:
        raise not_found("batch")
    return batch
