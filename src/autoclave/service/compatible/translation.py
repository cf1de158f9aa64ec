"""What the protocols have in common: errors in their form, and jobs from problems that come along."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from autoclave.core import DataError, Ended, HostError, InputError, Outcome, Problem, Verdict
from autoclave.core.json import from_plain
from autoclave.service.answers import wait_for
from autoclave.service.leases import Leases
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, bad_input, draining, store_away
from autoclave.service.requests import accept, repaired_apart
from autoclave.service.running import FAULT
from autoclave.service.store import StoreAway
from autoclave.service.tokens import Client, Scope
from autoclave.service.wire import Job, Options

_LONGEST_WAIT_S = 86400.0
"""Clients of these protocols wait as long as they like; who hangs up cancels."""

_FLOOD_BYTES = 1 << 16

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def require_scope(client: Client, scope: Scope) -> None:
    """Check what only some requests of a route need.

    Raises:
        Refused: the client may not do this.
    """
    if scope not in client.scopes:
        raise Refused(403, "forbidden", f"the token does not have the scope {scope.value}")


def route_class(
    refuse: Callable[[Refused], Response],
    complain: Callable[[RequestValidationError], Response],
    require: Callable[[Request], None] = lambda _: None,
) -> type[APIRoute]:
    """Routes whose refusals and complaints have a protocol's form. `require` looks at a request before its body."""

    class ProtocolRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def handler(request: Request) -> Response:
                try:
                    require(request)
                    return await handle(request)
                except Refused as error:
                    return refuse(error)
                except HTTPException as error:  # FastAPI's own: the body cannot be read
                    return refuse(Refused(error.status_code, "input", error.detail))
                except StoreAway:
                    return refuse(store_away())
                except RequestValidationError as error:
                    return complain(error)

            return handler

    return ProtocolRoute


def printed(outcome: Outcome) -> tuple[str, str]:
    """Standard output and error as text; the beginning, where the limit of output ended the run."""
    end = _FLOOD_BYTES if outcome.ended is Ended.OUTPUT else None
    out, err = (stream[:end].decode("utf-8", "replace") for stream in (outcome.stdout, outcome.stderr))
    return out, err


def json_response(content: object, status: int, headers: Any = None) -> Response:
    """An answer as JSON."""
    return Response(json.dumps(content), status, headers, media_type="application/json")


async def keep_problem(parts: Parts, client: Client, problem: Problem) -> None:
    """Store a problem that came with a request.

    Raises:
        Refused: the client may not upload, or the problem cannot be judged here.
    """
    require_scope(client, Scope.PROBLEMS_WRITE)

    def keep() -> None:
        try:
            parts.judge.check(problem)
        except HostError as error:
            raise Refused(501, "host", repaired_apart(error)) from None
        except InputError as error:
            raise bad_input(str(error)) from None
        parts.store.put_problems([problem])
        parts.audit.note(client.id, "upload", problem=problem.digest)

    await asyncio.to_thread(keep)


async def verdict_of(parts: Parts, leases: Leases, request: Request, client: Client, job: Job) -> Verdict:
    """The verdict of one job, which is queued, kept and judged like any other.

    Raises:
        Refused: it cannot be judged, there is no room, or there is no verdict.
    """
    batch = await accept(parts, client, [job], Options(keep_s=0.0), None)
    id = (await asyncio.to_thread(parts.store.jobs_of, batch.id))[0].id
    state = await wait_for(parts, leases, request, batch, id, _LONGEST_WAIT_S)
    if state.verdict is None:  # the server is about to end, or the client is gone
        raise draining(1.0)
    try:
        verdict = from_plain(Verdict, json.loads(state.verdict), "verdict")
    except DataError:
        raise Refused(500, "fault", FAULT) from None
    if verdict.fault is not None:
        raise Refused(500, "fault", FAULT)
    return verdict


__all__ = [
    "json_response",
    "keep_problem",
    "printed",
    "require_scope",
    "route_class",
    "verdict_of",
]
