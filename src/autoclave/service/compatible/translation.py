"""Common parts of the protocols: error responses, and jobs for problems in requests."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from autoclave.core import Ended, Outcome, Problem, Verdict
from autoclave.core.json import from_plain
from autoclave.service.answers import wait_for
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, draining, fault, judge_errors_refused, store_unavailable
from autoclave.service.requests import accept
from autoclave.service.store.records import StoreUnavailable
from autoclave.service.tokens import Client, Scope
from autoclave.service.wire import Job, Options

_LONGEST_WAIT_S = 86400.0
"""A client that disconnects cancels."""

SILENT_S = 20.0
"""Seconds without a byte after which a client may give up; open-r1 waits for 30."""
_BLANK_S, _POLL_S = 4.0, 1.0
_NOT_BUFFERED = {"Content-Type": "application/json", "X-Accel-Buffering": "no"}
_FLOOD_BYTES = 1 << 16

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def route_class(
    http_error: Callable[[Refused], Response],
    validation_error: Callable[[RequestValidationError], Response],
    late_error: Callable[[Response], object],
    require: Callable[[Request], None] = lambda _: None,
) -> type[APIRoute]:
    """Return a class of routes with a protocol's error responses. `require` checks requests before their bodies.

    A response that takes longer than its client waits for a byte begins with blanks, which JSON allows. If it turns out
    to be an error, its status has been sent, and `late_error` returns the body.
    """

    class ProtocolRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def handler(request: Request) -> Response:
                responding = asyncio.ensure_future(respond(request))
                while not responding.done():
                    silent_until = getattr(request.state, "silent_until", None)
                    left_s = _POLL_S if silent_until is None else silent_until - asyncio.get_running_loop().time()
                    if left_s <= 0:
                        request.state.is_kept_alive = True
                        return StreamingResponse(_kept_alive(responding, late_error), headers=_NOT_BUFFERED)
                    await asyncio.wait({responding}, timeout=min(left_s, _POLL_S))
                return responding.result()

            async def respond(request: Request) -> Response:
                try:
                    require(request)
                    return await handle(request)
                except Refused as error:
                    request.state.refusal = error
                    return http_error(error)
                except HTTPException as error:  # of FastAPI: the body cannot be parsed
                    return http_error(Refused(error.status_code, "input", error.detail))
                except StoreUnavailable:
                    return http_error(store_unavailable())
                except RequestValidationError as error:
                    return validation_error(error)

            return handler

    return ProtocolRoute


async def _kept_alive(
    responding: asyncio.Future[Response], late_error: Callable[[Response], object]
) -> AsyncGenerator[bytes]:
    while not responding.done():
        yield b" "
        await asyncio.wait({responding}, timeout=_BLANK_S)
    response = responding.result()
    yield bytes(response.body) if response.status_code == 200 else json.dumps(late_error(response)).encode()


def printed(outcome: Outcome) -> tuple[str, str]:
    """Decode standard output and error; only the beginning, if the output limit ended the run."""
    end = _FLOOD_BYTES if outcome.ended is Ended.OUTPUT else None
    out, err = (stream[:end].decode("utf-8", "replace") for stream in (outcome.stdout, outcome.stderr))
    return out, err


class Clipped:
    """Limits of a request, clipped to those of the server; `notes` names them."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def within(self, name: str, wanted: float, greatest: float) -> float:
        if wanted > greatest:
            self.notes.append(f"{name} = {wanted:g} was clipped to the server's limit of {greatest:g}")
        return min(wanted, greatest)

    @property
    def message(self) -> str:
        return "; ".join(self.notes)


def json_response(content: object, status: int, headers: Any = None) -> Response:
    return Response(json.dumps(content), status, headers, media_type="application/json")


async def keep_problem(parts: Parts, client: Client, problem: Problem) -> str:
    """Store a problem that is part of a request, and return its digest, or raise `Refused`."""
    if Scope.PROBLEMS_WRITE not in client.scopes:  # only some requests of a route need it
        raise Refused(403, "forbidden", f"the token does not have the scope {Scope.PROBLEMS_WRITE.value}")

    def keep() -> str:
        with judge_errors_refused():
            parts.judge.check(problem)
        parts.store.put_problems([problem], client.id, parts.config.compatible.keep_problems_s)
        digest = problem.digest
        parts.audit.note(client.id, "upload", problem=digest)
        return digest

    return await asyncio.to_thread(keep)


async def verdict_of(parts: Parts, request: Request, client: Client, job: Job) -> Verdict:
    """Queue one job and return its verdict, or raise `Refused`."""
    request.state.silent_until = asyncio.get_running_loop().time() + SILENT_S
    batch = await accept(parts, client, [job], Options(keep_s=0.0), None)
    id = (await asyncio.to_thread(parts.store.jobs_of, batch.id))[0].id
    state = await wait_for(parts, request, batch, id, _LONGEST_WAIT_S)
    if state.verdict is None:  # the server is shutting down, or the client has disconnected
        raise draining(1.0)
    verdict = from_plain(Verdict, json.loads(state.verdict), "verdict")
    if verdict.fault is not None:
        raise fault()
    return verdict
