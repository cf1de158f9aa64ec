"""Under a flood, requests for which there is surely no room are refused before they are parsed and checked.

What is refused so would have been refused anyway, with the same words; but parsing and checking take most of the time
of a request, and that time is the judge's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.responses import JSONResponse

from autoclave.service.access import require_proof
from autoclave.service.bodies import App, Message, Receive, Send
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused
from autoclave.service.store import StoreAway
from autoclave.service.tokens import Client, Scope

_JOBS, _BATCHES = "/v1/jobs", "/v1/batches"
_PROGRAM = re.compile(rb'"source"\s*:')
"""Once per program: within a text of JSON no quotation mark stands as it is."""


class EarlyRefusals:
    """An ASGI application around another one. It comes after the limits of bodies."""

    def __init__(self, app: App, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if not self._may_be_refused(scope):
            await self._app(scope, receive, send)
            return
        client = await _client_of(scope)
        read = _Read(receive)
        if client is not None and (refusal := await self._refusal(client, scope, read)):
            await JSONResponse(refusal.body, refusal.status_code, refusal.headers)(scope, receive, send)
            return
        await self._app(scope, read, send)

    def _may_be_refused(self, scope: MutableMapping[str, Any]) -> bool:
        is_judging = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in (_JOBS, _BATCHES)
        return is_judging and self._parts.dispatcher.has_refused(time.monotonic())

    async def _refusal(self, client: Client, scope: MutableMapping[str, Any], read: _Read) -> Refused | None:
        """What the request would be refused with; None if it may be accepted, or is none that we understand."""
        if Scope.JUDGE not in client.scopes:
            return None
        count = 1 if scope["path"] == _JOBS else len(_PROGRAM.findall(await read.all()))
        try:
            self._parts.dispatcher.require_room(client.id, count)
        except Refused as refusal:
            is_known = await self._is_known(client, scope)
            return None if is_known else refusal
        return None

    async def _is_known(self, client: Client, scope: MutableMapping[str, Any]) -> bool:
        """Whether the request was accepted before, under its key."""
        keys = [value for name, value in scope["headers"] if name.lower() == b"idempotency-key"]
        if not keys:
            return False
        try:
            batch = await asyncio.to_thread(self._parts.store.batch_of_key, client.id, keys[0].decode("latin-1"))
        except StoreAway:
            return True
        return batch is not None


async def _client_of(scope: MutableMapping[str, Any]) -> Client | None:
    """Who asks; None for those whom the application will turn away."""
    try:
        await require_proof(scope)
    except Refused:
        return None
    return scope["state"]["client"]


class _Read:
    """What comes of a request, part of which was read before."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []
        self._trouble: Exception | None = None

    async def all(self) -> bytes:
        """The whole body; empty if it cannot be read, which the application will find, too."""
        try:
            while not self._kept or self._kept[-1].get("more_body", False):
                self._kept.append(await self._receive())
        except Exception as trouble:  # noqa: BLE001  it is raised where the application reads
            self._trouble = trouble
            return b""
        return b"".join(message.get("body", b"") for message in self._kept)

    async def __call__(self) -> Message:
        if self._kept:
            return self._kept.pop(0)
        if self._trouble is not None:
            raise self._trouble
        return await self._receive()
