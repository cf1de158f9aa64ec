"""Observe requests: an id for each, counts, times, and the access log."""

import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused
from autoclave.service.request_ids import request_id

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
