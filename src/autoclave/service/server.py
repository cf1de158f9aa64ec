"""The application: routes, one form of errors, limits of bodies. What it works with is handed in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from autoclave.core.json import rule_of
from autoclave.service.access import require_proof
from autoclave.service.bodies import App, BoundedBodies, Message, Receive, Send
from autoclave.service.compatible import routers_of
from autoclave.service.early_refusals import EarlyRefusals
from autoclave.service.leases import Leases
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, described_errors, store_away
from autoclave.service.routes import jobs, monitoring, problems, runs
from autoclave.service.store import Batch, StoreAway
from autoclave.service.wire import ErrorAnswer

_log = logging.getLogger(__name__)
_UPLOADS = "/v1/problems"
_THREADS = 16
_KINDS = {400: "input", 404: "not_found", 405: "input"}


def create_app(parts: Parts) -> FastAPI:
    """The application. It starts and ends the node; the judge and the store are the caller's to close."""

    @contextlib.asynccontextmanager
    async def running(app: FastAPI) -> AsyncGenerator[None]:
        leases: Leases = app.state.leases
        # The default has as many threads as cores: a few free-form runs would keep all others waiting.
        threads = _THREADS + (parts.config.admission.concurrent_runs or parts.dispatcher.slots)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(threads, "serve"))

        def expect(batches: Sequence[Batch]) -> None:  # their clients were at a node that is gone
            for batch in batches:
                loop.call_soon_threadsafe(leases.expect, batch)

        await asyncio.to_thread(parts.node.start, expect)
        yield
        leases.close()
        await asyncio.to_thread(parts.node.stop)

    app = FastAPI(
        title="Autoclave judge",
        version=version("autoclave"),
        description="Programs and the tests of stored problems in, verdicts out.",
        lifespan=running,
        responses=described_errors(ErrorAnswer),
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        separate_input_output_schemas=False,
    )
    app.state.parts = parts
    app.state.leases = Leases(parts.store)
    for module in (problems, jobs, runs, monitoring):
        app.include_router(module.router)
    for router in routers_of(parts.config.compatible.protocols):
        app.include_router(router)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _complain)
    app.add_exception_handler(StoreAway, _put_off)
    app.add_exception_handler(Exception, _apologise)
    app.add_middleware(EarlyRefusals, parts=parts)
    app.add_middleware(_Counted, parts=parts)
    admission = parts.config.admission
    app.add_middleware(
        BoundedBodies,
        limit_mb=lambda path: admission.upload_limit_mb if path == _UPLOADS else admission.request_limit_mb,
        require=require_proof,
    )
    return app


class _Counted:
    """An ASGI application around another one, whose answers are counted."""

    def __init__(self, app: App, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._parts.metrics.note_answer(scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)


# --- Errors (FastAPI would run handlers that are not async in another thread) ----------------------------------------


def _answer(status: int, kind: str, message: str, headers: Any = None) -> Response:
    content = json.dumps({"error": {"kind": kind, "message": message}})
    return Response(content, status, headers, media_type=JSONResponse.media_type)


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = error.kind if isinstance(error, Refused) else _KINDS.get(error.status_code, "input")
    return _answer(error.status_code, kind, str(error.detail), error.headers)


async def _complain(_: Request, error: Exception) -> Response:
    """The first thing that is wrong with a request: where, and the rule; never what was given."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    if first["type"] == "json_invalid":
        return _answer(422, "input", "the body is not valid JSON")
    return _answer(422, "input", f"{where[:200]}: {rule_of(first['msg'])[:300]}")


async def _put_off(request: Request, error: Exception) -> Response:
    """The database does not answer. Nothing says where it is."""
    return await _refuse(request, store_away())


async def _apologise(_: Request, error: Exception) -> Response:
    """Starlette raises it again afterwards, which puts it into the log."""
    return _answer(500, "internal", "the server failed; its log says more")
