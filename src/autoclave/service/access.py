"""Who asks, and what they may do. Routes name the scopes that they need; who shows no valid token is refused before
the body of the request is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase

from autoclave.service.leases import Leases
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, busy
from autoclave.service.tokens import LOCAL_CLIENT, Client, Scope, identity_of, is_proved

_UNAUTHORIZED = "a valid token is needed: Authorization: Bearer TOKEN"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def parts_of(request: Request) -> Parts:
    """The parts of the server that got the request."""
    return request.app.state.parts


async def _parts(request: Request) -> Parts:  # FastAPI would call a plain function in another thread
    return parts_of(request)


async def _leases(request: Request) -> Leases:
    return request.app.state.leases


PartsHere = Annotated[Parts, Depends(_parts)]
"""The parts of the server that got the request."""
LeasesHere = Annotated[Leases, Depends(_leases)]
"""Who waits for what, at this server."""


class _Shown(SecurityBase):
    """A token as a bearer, or as the password of a URL such as http://any:TOKEN@host: some clients are given a URL and
    nothing else.
    """

    def __init__(self) -> None:
        self.model = BearerModel(description="A token of `autoclave serve token create`.")
        self.scheme_name = "HTTPBearer"

    async def __call__(self, request: Request) -> str | None:
        """The token, None where there is none."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return text
        if kind.lower() != "basic":
            return None
        try:
            return base64.b64decode(text, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""


_SHOWN = _Shown()


async def require_proof(scope: MutableMapping[str, Any]) -> None:
    """Check who asks, before anything of the body is read. What the request is about is not known yet.

    Raises:
        Refused: it shows no valid token.
    """
    request = Request(scope)
    await _proved(request, await _SHOWN(request))


async def client_of(request: Request, needed: SecurityScopes, shown: Annotated[str | None, Security(_SHOWN)]) -> Client:
    """The client, which may do what the route asks for.

    Raises:
        Refused: it shows no valid token, may not do this, or asks too often.
    """
    client = await _proved(request, shown)
    missing = [scope for scope in needed.scopes if scope not in client.scopes]
    if missing:
        raise Refused(403, "forbidden", f"the token does not have the scope {missing[0]}")
    if wait_s := parts_of(request).buckets.wait_s(client.id, time.monotonic()):
        raise busy("too many requests; come back later", wait_s)
    return client


async def _proved(request: Request, token: str | None) -> Client:
    """The client that shows this token, or none; once per request."""
    known: Client | None = getattr(request.state, "client", None)
    if known is None:
        request.state.client = known = await _client_with(request, token)
    return known


async def _client_with(request: Request, token: str | None) -> Client:
    parts = parts_of(request)
    if token is not None:
        return await _owner_of(parts, token)
    if parts.config.require_token:
        raise Refused(401, "unauthorized", _UNAUTHORIZED)
    _require_no_web_page(request)
    return LOCAL_CLIENT


async def _owner_of(parts: Parts, text: str) -> Client:
    """The client whose token this is. What is wrong with a token is not said."""
    identity = identity_of(text)
    record = await asyncio.to_thread(parts.store.token, identity) if identity else None
    if not is_proved(text, record, time.time()) or record is None:
        raise Refused(401, "unauthorized", _UNAUTHORIZED)
    return Client(record.id, record.scopes)


def _require_no_web_page(request: Request) -> None:
    """Where this machine is all the proof, a page in its browser must not ask on behalf of a stranger.

    Raises:
        Refused: a browser asks for a page, or under a name that a stranger may have given to this machine.
    """
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    if "origin" in request.headers or host not in _LOCAL_NAMES | {parts_of(request).config.host}:
        raise Refused(403, "forbidden", "without tokens, web pages and other names of this machine are refused")


def needs(*scopes: Scope) -> object:
    """The dependency of a route whose clients need these scopes."""
    dependency: Callable[..., Awaitable[Client]] = client_of
    return Security(dependency, scopes=[scope.value for scope in scopes])
