"""The FastAPI application: routes, error responses, limits of bodies, and what is observed of each request (an id,
counts, times, the access log). Its parts are arguments.
"""

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoclave import __version__
from autoclave.service.access import authenticate
from autoclave.service.bodies import BoundedBodies
from autoclave.service.compatible import routers_of
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, described_errors, store_unavailable, validation_message
from autoclave.service.request_ids import request_id
from autoclave.service.routes import jobs, monitoring, problems, runs
from autoclave.service.store.records import Batch, StoreUnavailable
from autoclave.service.wire import ErrorAnswer

_log = logging.getLogger(__name__)
_UPLOADS = "/v1/problems"
_VALUES_OF_A_JOB = 24
"""Most values in the JSON of a request, for each job that it may have: it is parsed while other requests wait."""
_THREADS = 16
_STORE_PAUSE_S = 1.0
_KINDS = {400: "input", 404: "not_found", 405: "input"}


def create_app(parts: Parts) -> FastAPI:
    """Return the application. It starts and stops the node; the caller closes the judge and the store."""

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncGenerator[None]:
        # The default has as many threads as cores, and a few runs would block all other requests.
        threads = _THREADS + (parts.config.admission.concurrent_runs or parts.dispatcher.slots)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(threads, "serve"))

        def expect(batches: Sequence[Batch]) -> None:  # their clients were connected to a dead node
            for batch in batches:
                loop.call_soon_threadsafe(parts.leases.expect, batch)

        while not parts.is_stopping.is_set():
            try:
                await asyncio.to_thread(parts.node.start, expect)
                break
            except StoreUnavailable as error:
                _log.warning("the store does not respond (%s); retrying", error)
                await asyncio.sleep(_STORE_PAUSE_S)
        yield
        parts.leases.close()
        await asyncio.to_thread(parts.node.stop)

    app = FastAPI(
        title="Autoclave judge",
        version=__version__,
        description="Judges programs on the tests of stored problems.",
        lifespan=running,
        responses=described_errors(ErrorAnswer),
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        separate_input_output_schemas=False,
    )
    app.state.parts = parts
    for module in (problems, jobs, runs, monitoring):
        app.include_router(module.router)
    for router in routers_of(parts.config.compatible.protocols):
        app.include_router(router)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(StoreUnavailable, _store_error)
    app.add_exception_handler(Exception, _internal_error)
    app.add_middleware(Observed, parts=parts)
    admission = parts.config.admission
    most_values = _VALUES_OF_A_JOB * max(admission.batch_limit, 4096)
    app.add_middleware(
        BoundedBodies,
        limits=lambda path: (
            (admission.upload_limit_mb, None) if path == _UPLOADS else (admission.request_limit_mb, most_values)
        ),
        require=authenticate,
    )
    return app


# --- Errors (FastAPI would run handlers that are not async in another thread) ----------------------------------------


def _error_response(status: int, kind: str, message: str, headers: Any = None) -> Response:
    content = json.dumps({"error": {"kind": kind, "message": message}})
    return Response(content, status, headers, media_type=JSONResponse.media_type)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused):
        request.state.refusal = error
    kind = error.kind if isinstance(error, Refused) else _KINDS.get(error.status_code, "input")
    return _error_response(error.status_code, kind, str(error.detail), error.headers)


async def _validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _error_response(422, "input", validation_message(error))


async def _store_error(request: Request, error: Exception) -> Response:
    """Report that the database does not respond, without its address."""
    return await _http_error(request, store_unavailable())


async def _internal_error(_: Request, error: Exception) -> Response:
    """Report a bug; Starlette raises it again, which logs it."""
    return _error_response(500, "internal", "the server failed; its log has the error")


_GIVEN = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""Header `traceparent` of OpenTelemetry (W3C Trace Context)."""


class Observed:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        scope.setdefault("state", {})
        id = _id_of(scope)
        request_id.set(id)

        async def observing(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", id.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, observing)
        except Exception:
            status = status or 500
            raise
        finally:
            self._note(scope, id, status, time.perf_counter() - began)

    def _note(self, scope: Scope, id: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 means that the client disconnected before the response."""
        client = getattr(scope["state"].get("client"), "id", "")
        refusal: Refused | None = scope["state"].get("refusal")
        route = getattr(scope.get("route"), "path", "other")
        self._parts.metrics.note_response(scope["method"], status, route, seconds)
        if refusal is not None:
            self._parts.metrics.note_refusal(refusal.cause, client)
        if self._parts.access_log is not None:
            line = {"client": client, "method": scope["method"], "path": scope["path"], "status": status}
            line |= {"refusal": refusal.cause} if refusal else {}
            address = (scope.get("client") or ("",))[0]
            self._parts.access_log.write(line | {"seconds": round(seconds, 6), "address": address, "request": id})


def _id_of(scope: Scope) -> str:
    """Return the id that the client chose, the id of its trace, or a new one."""
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    given = headers.get(b"x-request-id", "")
    trace = _TRACE.fullmatch(headers.get(b"traceparent", ""))
    return given if _GIVEN.fullmatch(given) else trace[1] if trace else secrets.token_hex(8)
