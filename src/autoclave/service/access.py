"""Who asks, and what they may do. Routes name the scopes that they need."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from autoclave.service.leases import Leases
from autoclave.service.parts import Parts
from autoclave.service.refusals import Refused, busy
from autoclave.service.tokens import LOCAL_CLIENT, Client, Scope, identity_of, is_proved

_BEARER = HTTPBearer(auto_error=False, description="A token of `autoclave serve token create`.")
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


async def client_of(
    request: Request, needed: SecurityScopes, shown: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> Client:
    """The client, which may do what the route asks for.

    Raises:
        Refused: it shows no valid token, may not do this, or asks too often.
    """
    return await client_shown(request, None if shown is None else shown.credentials, needed.scopes)


async def client_shown(request: Request, token: str | None, scopes: Iterable[str]) -> Client:
    """The client that shows this token, or none, and may do what needs these scopes.

    Raises:
        Refused: the token is not valid, it may not do this, or asks too often.
    """
    parts = parts_of(request)
    if token is not None:
        client = await _proved(parts, token)
    elif parts.config.require_token:
        raise Refused(401, "unauthorized", "a valid token is needed: Authorization: Bearer TOKEN")
    else:
        _require_no_web_page(request)
        client = LOCAL_CLIENT
    missing = [scope for scope in scopes if scope not in client.scopes]
    if missing:
        raise Refused(403, "forbidden", f"the token does not have the scope {missing[0]}")
    if wait_s := parts.buckets.wait_s(client.id, time.monotonic()):
        raise busy("too many requests; come back later", wait_s)
    return client


async def _proved(parts: Parts, text: str) -> Client:
    """The client whose token this is. What is wrong with a token is not said."""
    identity = identity_of(text)
    record = await asyncio.to_thread(parts.store.token, identity) if identity else None
    if not is_proved(text, record, time.time()) or record is None:
        raise Refused(401, "unauthorized", "a valid token is needed: Authorization: Bearer TOKEN")
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
