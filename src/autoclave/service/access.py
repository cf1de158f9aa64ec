"""Authentication and scopes. Routes name the scopes that they need; a request without a valid token is refused before
its body is read.

Requests that cannot fit into a full queue are refused before they are parsed (`JudgingRoute`). The route would refuse
them with the same messages, but parsing takes most of the time of a request, and under a flood the judge needs it.
"""

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, busy, store_unavailable
from autoclave.service.store.records import StoreUnavailable, Usage
from autoclave.service.tokens import LOCAL_CLIENT, Client, Scope, identity_of, is_authentic

_UNAUTHORIZED = "a valid token is needed: Authorization: Bearer TOKEN"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def parts_of(request: Request) -> Parts:
    return request.app.state.parts


async def _parts(request: Request) -> Parts:  # FastAPI would run a plain function in a thread
    return parts_of(request)


PartsDep = Annotated[Parts, Depends(_parts)]


class _TokenScheme(SecurityBase):
    """A bearer token, or the password of a URL such as http://any:TOKEN@host, for clients that take only a URL."""

    def __init__(self) -> None:
        self.model = BearerModel(description="A token of `autoclave serve token create`.")
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request) -> str | None:
        """Return the token; None without one."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return text
        if kind.lower() != "basic":
            return None
        try:
            return base64.b64decode(text, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""


_TOKEN_SCHEME = _TokenScheme()


async def authenticate(scope: MutableMapping[str, Any]) -> None:
    """Authenticate a request before its body is read. Raises only `Refused`: FastAPI takes others for a broken body."""
    request = Request(scope)
    try:
        await _authenticated(request, await _TOKEN_SCHEME(request))
    except StoreUnavailable:
        raise store_unavailable() from None


async def client_of(
    request: Request, needed: SecurityScopes, token: Annotated[str | None, Security(_TOKEN_SCHEME)]
) -> Client:
    """Return the client of a request, or raise `Refused`."""
    client = await _authenticated(request, token)
    missing = [scope for scope in needed.scopes if scope not in client.scopes]
    if missing:
        raise Refused(403, "forbidden", f"the token does not have the scope {missing[0]}")
    if request.method == "POST" and Scope.JUDGE in needed.scopes:
        is_job = request.url.path in ("/v1/jobs", "/v1/batches")
        key = request.headers.get("idempotency-key") if is_job else None
        await asyncio.to_thread(_require_cpu_time, parts_of(request), client, key)
    return client


def _require_cpu_time(parts: Parts, client: Client, key: str | None) -> None:
    """Refuse a client that has used up its CPU seconds. What it has already queued, by this key, is still judged."""
    limits, now = client.limits, time.time()
    if limits.cpu_s_per_hour is None and limits.cpu_s_per_day is None:
        return
    if key and parts.store.batch_of_key(client.id, key):
        return
    used = parts.store.usage(now).get(client.id, Usage())
    for name, spent_s, most_s, period_s in (
        ("day", used.day_s, limits.cpu_s_per_day, 86400),
        ("hour", used.hour_s, limits.cpu_s_per_hour, 3600),
    ):
        if most_s is not None and spent_s >= most_s:
            message = f"the {most_s:g} CPU seconds of this {name} are used up. Fix: retry after Retry-After seconds"
            raise busy(message, period_s - now % period_s, "cpu_time")


async def _authenticated(request: Request, token: str | None) -> Client:
    """Return the client of a token, looked up and counted once per request."""
    known: Client | None = getattr(request.state, "client", None)
    if known is None:
        parts = parts_of(request)
        request.state.client = known = await _client_with(parts, request, token)
        if wait_s := parts.buckets.wait_s(known.id, time.monotonic(), known.limits.requests_per_s):
            raise busy("too many requests. Fix: retry after Retry-After seconds", wait_s, "rate")
    return known


async def _client_with(parts: Parts, request: Request, text: str | None) -> Client:
    """Return the client of a token, or the local one. The response never gives the reason for a refused token."""
    if text is None and not parts.config.require_token:
        _require_no_web_page(request)
        return LOCAL_CLIENT
    identity = identity_of(text or "")
    record = await asyncio.to_thread(parts.store.token, identity) if identity else None
    if not is_authentic(text or "", record, time.time()) or record is None:
        raise Refused(401, "unauthorized", _UNAUTHORIZED)
    return Client(record.id, record.scopes, record.limits)


def _require_no_web_page(request: Request) -> None:
    """Refuse web pages and foreign host names: without tokens, a page in a local browser could use the server."""
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if "origin" in request.headers or host not in _LOCAL_NAMES | {parts_of(request).config.host}:
        raise Refused(403, "forbidden", "without tokens, web pages and other names of this machine are refused")


def needs(*scopes: Scope) -> object:
    dependency: Callable[..., Awaitable[Client]] = client_of
    return Security(dependency, scopes=[scope.value for scope in scopes])


Judging = Annotated[Client, needs(Scope.JUDGE)]
Uploading = Annotated[Client, needs(Scope.PROBLEMS_WRITE)]


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
