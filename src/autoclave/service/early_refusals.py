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

from autoclave.service.access import parts_of
from autoclave.service.refusals import Refused, store_unavailable
from autoclave.service.store.records import StoreUnavailable
from autoclave.service.tokens import Scope

_PROGRAM = re.compile(rb'"source"\s*:')
"""Matches once per program: inside a JSON string, quotation marks are escaped."""


class _JudgingRequest(Request):
    async def json(self) -> Any:
        parts, client = parts_of(self), self.state.client  # authenticated before its body was read
        if Scope.JUDGE in client.scopes and parts.dispatcher.has_refused(time.monotonic()):
            try:
                is_batch = self.url.path == "/v1/batches"
                parts.dispatcher.require_room(client.id, len(_PROGRAM.findall(await self.body())) if is_batch else 1)
            except Refused:
                key = self.headers.get("idempotency-key")  # of a request that was accepted before
                try:
                    if key is None or await asyncio.to_thread(parts.store.batch_of_key, client.id, key) is None:
                        raise
                except StoreUnavailable:  # FastAPI would take it for a broken body
                    raise store_unavailable() from None
        return await super().json()


class JudgingRoute(APIRoute):
    """Route of jobs or batches."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await handle(_JudgingRequest(request.scope, request.receive))

        return handler
