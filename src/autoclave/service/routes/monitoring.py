"""Routes of health, load and metrics."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from autoclave import __version__
from autoclave.service.access import Judging, PartsDep, needs
from autoclave.service.tokens import Client
from autoclave.service.wire import Health, ServerAnswer

router = APIRouter(prefix="/v1", tags=["server"])
_NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Not ready."}}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "A line per value.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health", response_model=Health, responses=_NOT_READY)
async def health(parts: PartsDep) -> Response:
    """Liveness: on failure, restart the server. Needs no token."""
    is_well = parts.dispatcher.is_alive
    return JSONResponse({"status": "ok" if is_well else "failed"}, 200 if is_well else 503)


@router.get("/ready", response_model=Health, responses=_NOT_READY)
async def ready(parts: PartsDep) -> Response:
    """Readiness: whether the server accepts jobs. Needs no token."""
    if not parts.dispatcher.is_alive or parts.dispatcher.is_draining:
        status = "draining"
    else:
        status = "ok" if parts.node.is_in_touch else "store"
    return JSONResponse({"status": status}, 200 if status == "ok" else 503)


@router.get("/server")
async def server(parts: PartsDep, client: Judging) -> ServerAnswer:
    """Get properties and load of the server."""
    dispatcher, config = parts.dispatcher, parts.config
    load = await asyncio.to_thread(dispatcher.load)
    return ServerAnswer(
        version=__version__,
        level=parts.judge.level,
        slots=dispatcher.slots,
        all_slots=load.slots,
        waiting=load.waiting,
        running=dispatcher.num_running,
        per_s=round(dispatcher.per_s(), 3),
        is_draining=dispatcher.is_draining,
        batch_limit=parts.largest_batch(client),
        least_time_limit_s=config.judge.time_limit_range[0],
        greatest_time_limit_s=config.judge.time_limit_range[1],
        memory_limit_mb=config.sandbox.memory_limit_mb,
    )


@router.get("/metrics", response_class=Response, responses=_TEXT)
async def metrics(parts: PartsDep, client: Annotated[Client, needs()]) -> Response:
    """Get metrics in the text format of Prometheus. Any valid token is accepted."""
    dispatcher = parts.dispatcher
    load = await asyncio.to_thread(dispatcher.load)
    gauges = {
        "queue_jobs": load.waiting,
        "queue_clients": load.clients,
        "running_jobs": dispatcher.num_running,
        "slots": dispatcher.slots,
        "is_draining": dispatcher.is_draining,
    }
    return PlainTextResponse(parts.metrics.text(gauges))
