"""Refuse requests that cannot fit into a full queue before they are parsed.

The route would refuse the same requests with the same messages, but parsing takes most of the time of a request, and
under a flood the judge needs that time.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from autoclave.service.access import authenticate, parts_of
from autoclave.service.refusals import Refused
from autoclave.service.tokens import Client, Scope

_BATCHES = "/v1/batches"
_PROGRAM = re.compile(rb'"source"\s*:')
"""Matches once per program: inside a JSON string, quotation marks are escaped."""


class JudgingRoute(APIRoute):
    """Route of jobs or batches."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if request.method == "POST" and parts_of(request).dispatcher.has_refused(time.monotonic()):
                await _require_room(request)
            return await handle(request)

        return handler


async def _require_room(request: Request) -> None:
    """Raise `Refused` if the request cannot fit and was not accepted before under its idempotency key."""
    await authenticate(request.scope)
    parts, client = parts_of(request), request.state.client
    assert isinstance(client, Client)
    if Scope.JUDGE not in client.scopes:
        return
    try:
        count = len(_PROGRAM.findall(await request.body())) if request.url.path == _BATCHES else 1
    except ClientDisconnect:
        return
    try:
        parts.dispatcher.require_room(client.id, count)
    except Refused:
        key = request.headers.get("idempotency-key")
        if key is None or await asyncio.to_thread(parts.store.batch_of_key, client.id, key) is None:
            raise
