"""What stands before the review page: who may ask, from which pages, and how much. Knows nothing of actions.

The server listens on the loopback interface only. Every request needs the token of this start:

- the page and its files have it as the first part of their path, `/TOKEN/review.js`;
- the interface below `/api/` takes it from `Authorization: Bearer TOKEN` only. The page keeps it in memory.

There is no cookie: a browser sends the cookies of a host to all of its ports, so any other server on this machine,
such as one that an agent started, would get it. Without a cookie a page of another site cannot send a request that
counts; `Origin` and `Sec-Fetch-Site` are checked all the same. `Host` must name this machine, against DNS rebinding.
"""

import hmac
import re
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/"
MOST_BYTES = 1 << 20
"""Size of the body of a request."""
_HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
_READING = ("GET", "HEAD")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """ASGI middleware that passes only requests with the token, and puts the headers of safety on every response."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        given = Headers(scope=scope)
        headers = {name: ", ".join(given.getlist(name)) for name in given}
        refusal = self._refusal(scope["method"], scope["path"], headers)
        body = None if refusal else await _body(receive, headers)
        if refusal or body is None:
            status, message = refusal or (413, f"the body of a request may have {MOST_BYTES} bytes")
            await JSONResponse({"error": message}, status)(scope, receive, guarded)
            return
        if not scope["path"].startswith(API):
            path = scope["path"].removeprefix(f"/{self._token}")
            scope = {**scope, "path": path, "raw_path": path.encode()}
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replayed, guarded)

    def _refusal(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return status and message for a request that is refused; None if it may pass."""
        host = headers.get("host", "")
        if not _HOSTS.fullmatch(host):
            return 403, "Host must be 127.0.0.1 or localhost; open the URL that `autoclave act serve` printed"
        if not path.startswith(API):
            given, slash, rest = path[1:].partition("/")
            is_right = bool(slash) and self._is_token(given) and not f"/{rest}".startswith(API)
            return None if is_right else (403, "no valid token; open the URL that `autoclave act serve` printed")
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._is_token(given):
            return 401, "no valid token; open the URL that `autoclave act serve` printed"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "requests of other sites are refused"
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return 403, "requests of other origins are refused"
        if method not in _READING and headers.get("content-type", "").partition(";")[0] != "application/json":
            return 415, "the body must be application/json"
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


async def _body(receive: Receive, headers: Mapping[str, str]) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    announced = headers.get("content-length", "0")
    if not announced.isdigit() or int(announced[:20]) > MOST_BYTES:
        return None
    body, is_last = bytearray(), False
    while not is_last:
        message = await receive()
        body += message.get("body", b"")
        is_last = message["type"] != "http.request" or not message.get("more_body", False)
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)
