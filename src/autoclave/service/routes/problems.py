"""Routes of problems: upload, list, get, read answers, delete."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from autoclave.core import DataError, HostError, InputError, Problem
from autoclave.core.json import parse_object
from autoclave.core.problem import StoredTests
from autoclave.service import wire
from autoclave.service.access import Judging, PartsDep, Uploading, needs
from autoclave.service.bodies import lines_of
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, not_found, without_fix
from autoclave.service.store.records import JobSpec
from autoclave.service.tokens import Client, Scope

router = APIRouter(prefix="/v1/problems", tags=["problems"])
DigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$", examples=[wire.EXAMPLE_DIGEST])]
_TOGETHER = 64
"""Most problems in one transaction."""
_TOGETHER_BYTES = 8 << 20
"""Bytes of problems after which a transaction ends."""
_BODY = {
    "required": True,
    "description": "Lines of a problem file (autoclave-problem/1). Content-Encoding may be gzip or zstd.",
    "content": {
        "application/x-ndjson": {
            "schema": {"type": "string"},
            "example": '{"format": "autoclave-problem/1", "id": "add", "statement": "Add two numbers.", '
            '"tests": {"kind": "stdin", "cases": [{"input": "3 4\\n", "output": "7\\n"}]}}\n',
        }
    },
}


@router.post("", status_code=200, openapi_extra={"requestBody": _BODY})
async def upload(request: Request, parts: PartsDep, client: Uploading) -> wire.Uploaded:
    """Upload problems. A problem with a stored digest is not stored again. Lines before a refused line are kept."""
    parts.dispatcher.require_accepting()
    done: list[wire.UploadedProblem] = []
    pending: list[Problem] = []
    size = 0
    number = 0
    try:
        async for line in lines_of(request.stream(), parts.config.admission.line_limit_mb):
            number += 1
            problem = await asyncio.to_thread(_checked, parts, line, number) if line else None
            if problem is None:
                continue
            pending.append(problem)
            size += len(line)
            if len(pending) >= _TOGETHER or size >= _TOGETHER_BYTES:
                done += await _stored(parts, client, pending)
                pending, size = [], 0
    finally:
        done += await _stored(parts, client, pending)
    return wire.Uploaded(problems=done, new=sum(problem.is_new for problem in done))


def _checked(parts: Parts, line: bytes, number: int) -> Problem | None:
    """Return the problem of a line, None for a blank one, or raise `Refused`, which names the line."""
    if line.isspace():
        return None
    where = f"line {number}"
    try:
        problem = Problem.from_json(parse_object(line.decode("utf-8-sig"), where), where)
        if isinstance(problem.tests, StoredTests):
            raise bad_input(f"{where}: tests.kind = stored: has no tests. Fix: upload the tests themselves")
        parts.judge.check(problem)
    except UnicodeDecodeError:
        raise bad_input(f"{where}: not UTF-8") from None
    except DataError as error:
        raise bad_input(without_value(str(error))) from None
    except HostError as error:
        raise Refused(501, "host", f"{where}: {without_fix(error)}") from None
    except InputError as error:
        raise bad_input(f"{where}: {without_value(str(error))}") from None
    return problem


def without_value(message: str) -> str:
    """Return a message `path = value: rule` without the value, which may be part of an expected answer."""
    path, equals, rest = message.partition(" = ")
    return f"{path}: {rest.rpartition(': ')[2]}" if equals else message


async def _stored(parts: Parts, client: Client, problems: list[Problem]) -> list[wire.UploadedProblem]:
    if not problems:
        return []
    are_new = await asyncio.to_thread(parts.store.put_problems, problems, client.id)
    for problem in problems:
        parts.audit.note(client.id, "upload", problem=problem.digest)
    return [
        wire.UploadedProblem(digest=problem.digest, id=problem.id, is_new=is_new)
        for problem, is_new in zip(problems, are_new, strict=True)
    ]


@router.get("")
async def list_problems(
    parts: PartsDep,
    client: Judging,
    after: Annotated[str, Query(max_length=64)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> wire.ProblemList:
    """List stored problems by digest, in pages."""
    records = await asyncio.to_thread(parts.store.list_problems, after, limit)
    is_last = len(records) < limit
    return wire.ProblemList(problems=records, next=None if is_last else records[-1].digest)


@router.post("/lookup")
async def lookup(body: wire.Lookup, parts: PartsDep, client: Judging) -> wire.LookupAnswer:
    """Find out which problems must be uploaded, and which cannot be judged here in a language."""
    return await asyncio.to_thread(_lookup, parts, body.problems)


def _lookup(parts: Parts, needed: list[wire.ProblemNeed]) -> wire.LookupAnswer:
    known = {record.digest: record for record in parts.store.problem_records(sorted({need.digest for need in needed}))}
    unknown = [digest for digest in dict.fromkeys(need.digest for need in needed) if digest not in known]
    refused: list[wire.RefusedProblem] = []
    for need in needed:
        problem = parts.problems.get(JobSpec(need.digest, b"", need.language)) if need.digest in known else None
        if problem is None:
            continue
        try:
            parts.judge.check(problem)
        except HostError as error:
            refused.append(wire.RefusedProblem(digest=need.digest, kind="host", message=without_fix(error)))
        except InputError as error:
            refused.append(wire.RefusedProblem(digest=need.digest, kind="input", message=str(error)))
    return wire.LookupAnswer(unknown=unknown, refused=refused)


@router.get("/{digest}")
async def look_at(digest: DigestPath, parts: PartsDep, client: Judging) -> wire.StoredProblem:
    """Get a problem without its expected answers."""
    records = await asyncio.to_thread(parts.store.problem_records, [digest])
    if not records:
        raise not_found("problem")
    return records[0]


@router.get("/{digest}/answers")
async def read_answers(
    digest: DigestPath, parts: PartsDep, client: Annotated[Client, needs(Scope.ANSWERS_READ)]
) -> dict[str, Any]:
    """Get a problem with its expected answers, as a line of a problem file."""
    records = await asyncio.to_thread(parts.store.problem_records, [digest])
    problem = await asyncio.to_thread(parts.store.problem, digest) if records else None
    if problem is None:
        raise not_found("problem")
    parts.audit.note(client.id, "read_answers", problem=digest)
    return problem.to_json()


@router.delete("/{digest}", status_code=204)
async def delete(digest: DigestPath, parts: PartsDep, client: Uploading) -> Response:
    """Delete a problem of this client; with scope `admin`, any. Accepted jobs are still judged."""
    owner = None if Scope.ADMIN in client.scopes else client.id
    if not await asyncio.to_thread(parts.store.delete_problem, digest, owner):
        if await asyncio.to_thread(parts.store.problem_records, [digest]):
            raise Refused(403, "forbidden", "the problem is another client's. Fix: use a token with the scope admin")
        raise not_found("problem")
    parts.audit.note(client.id, "delete", problem=digest)
    return Response(status_code=204)
