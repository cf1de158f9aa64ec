"""Refuse requests that cannot fit into a full queue before they are parsed.

The application would refuse the same requests with the same messages, but parsing takes most of the time of a request,
and under a flood the judge needs that time.
"""

import asyncio
import re
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from autoclave.service.access import authenticate
from autoclave.service.bodies import App, Message, Receive, Send
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused
from autoclave.service.store.records import StoreUnavailable
from autoclave.service.tokens import Client, Scope

_JOBS, _BATCHES = "/v1/jobs", "/v1/batches"
_PROGRAM = re.compile(rb'"source"\s*:')
"""Matches once per program: inside a JSON string, quotation marks are escaped."""


class EarlyRefusals:
    """ASGI middleware, inside of `BoundedBodies`."""

    def __init__(self, app: App, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if not self._may_be_refused(scope):
            await self._app(scope, receive, send)
            return
        client, body = await _client_of(scope), b""
        if client is not None and scope["path"] == _BATCHES:
            body, receive = await _read(scope, receive)
        if client is not None and (refusal := await self._refusal(client, scope, body)):
            scope["state"]["refusal"] = refusal
            await JSONResponse(refusal.body, refusal.status_code, refusal.headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may_be_refused(self, scope: MutableMapping[str, Any]) -> bool:
        is_judging = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in (_JOBS, _BATCHES)
        return is_judging and self._parts.dispatcher.has_refused(time.monotonic())

    async def _refusal(self, client: Client, scope: MutableMapping[str, Any], body: bytes) -> Refused | None:
        """Return the refusal of a request; None if the application must decide."""
        if Scope.JUDGE not in client.scopes:
            return None
        count = 1 if scope["path"] == _JOBS else len(_PROGRAM.findall(body))
        try:
            self._parts.dispatcher.require_room(client.id, count)
        except Refused as refusal:
            is_known = await self._is_known(client, scope)
            return None if is_known else refusal
        return None

    async def _is_known(self, client: Client, scope: MutableMapping[str, Any]) -> bool:
        """Return whether the request was accepted before under its idempotency key."""
        keys = [value for name, value in scope["headers"] if name.lower() == b"idempotency-key"]
        if not keys:
            return False
        try:
            batch = await asyncio.to_thread(self._parts.store.batch_of_key, client.id, keys[0].decode("latin-1"))
        except StoreUnavailable:
            return True
        return batch is not None


async def _client_of(scope: MutableMapping[str, Any]) -> Client | None:
    """Return the client; None where the application will refuse it."""
    try:
        await authenticate(scope)
    except Refused:
        return None
    return scope["state"]["client"]


async def _read(scope: MutableMapping[str, Any], receive: Receive) -> tuple[bytes, Receive]:
    """Return the body and a `receive` that replays it; after an error, nothing and a `receive` that raises it."""
    try:
        body = await Request(scope, receive).body()
    except Exception as error:  # noqa: BLE001  the application handles it
        found = error

        async def fail() -> Message:
            raise found

        return b"", fail
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return body, replay
