"""What the server says of itself."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from autoclave.service.access import PartsHere, needs
from autoclave.service.tokens import Client, Scope
from autoclave.service.wire import Health, ServerAnswer

router = APIRouter(prefix="/v1", tags=["server"])
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not now."}}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "A line per value.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health", response_model=Health, responses=_NOT_READY)
async def health(parts: PartsHere) -> Response:
    """Whether it works at all; if not, it should be started anew. Needs no token."""
    is_well = parts.dispatcher.is_alive
    return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)


@router.get("/ready", response_model=Health, responses=_NOT_READY)
async def ready(parts: PartsHere) -> Response:
    """Whether it takes new work. Needs no token."""
    if not parts.dispatcher.is_alive or parts.dispatcher.is_draining:
        status = "draining"
    else:
        status = "ok" if parts.node.is_in_touch else "store"
    return JSONResponse({"status": status}, 200 if status == "ok" else 503)


@router.get("/server")
async def server(parts: PartsHere, client: Annotated[Client, needs(Scope.JUDGE)]) -> ServerAnswer:
    """What the server is, and how much it has to do."""
    dispatcher, config = parts.dispatcher, parts.config
    num_waiting, all_slots = await asyncio.to_thread(dispatcher.share)
    return ServerAnswer(
        version=version("autoclave"),
        level=parts.judge.level,
        slots=dispatcher.slots,
        all_slots=all_slots,
        waiting=num_waiting,
        running=dispatcher.num_running,
        per_s=round(dispatcher.per_s(), 3),
        is_draining=dispatcher.is_draining,
        batch_limit=config.admission.largest_batch,
        least_time_limit_s=config.judge.time_limit_range[0],
        greatest_time_limit_s=config.judge.time_limit_range[1],
        memory_limit_mb=config.sandbox.memory_limit_mb,
    )


@router.get("/metrics", response_class=Response, responses=_TEXT)
async def metrics(parts: PartsHere, client: Annotated[Client, needs()]) -> Response:
    """Counters and gauges in the text form that Prometheus reads. Any valid token will do."""
    dispatcher = parts.dispatcher
    num_waiting, num_clients = await asyncio.to_thread(lambda: (dispatcher.num_waiting, dispatcher.num_clients))
    gauges = {
        "queue_jobs": num_waiting,
        "queue_clients": num_clients,
        "running_jobs": dispatcher.num_running,
        "slots": dispatcher.slots,
        "is_draining": dispatcher.is_draining,
    }
    return PlainTextResponse(parts.metrics.text(gauges))
