"""What the service answers instead of what was asked for. No text here holds a path, an answer or a secret."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException

_STORE_RETRY_S = 2.0
_REFUSED_AGAIN_S = 0.25
_STATUSES = {
    400: "The request cannot be read.",
    401: "No valid token.",
    403: "The token does not allow it.",
    404: "It is not there, or somebody else's.",
    409: "The idempotency key was used for another request.",
    413: "Too large.",
    415: "An unknown Content-Encoding or Content-Type.",
    422: "It cannot be used; the message says why.",
    429: "No room now; see Retry-After.",
    500: "The server failed.",
    501: "The server's machine lacks something.",
    503: "About to end, or without its database; see Retry-After.",
}


def described_errors(model: type[BaseModel], more: Mapping[int, str] = MappingProxyType({})) -> dict[int | str, Any]:
    """For the description of the interface: every status of an error, whose body is of this model."""
    texts = {**_STATUSES, **more}
    return {status: {"model": model, "description": text} for status, text in texts.items()}


class Refused(HTTPException):
    """An answer with one of the status codes 4xx and 5xx, in the one form that errors have."""

    def __init__(self, status: int, kind: str, message: str, retry_after_s: float | None = None) -> None:
        headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)
        self.kind = kind

    @property
    def body(self) -> dict[str, dict[str, str]]:
        """What is sent."""
        return {"error": {"kind": self.kind, "message": self.detail}}


class RecentRefusals:
    """What was refused for lack of room a moment ago is refused again without counting who waits: a flood of requests
    must not slow down those that are served.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int, Refused]] = {}

    def get(self, client: str, count: int, now: float) -> Refused | None:
        """The refusal of so many programs of the client, or of fewer."""
        since, least, refusal = self._known.get(client, (-math.inf, 0, None))
        return refusal if refusal and now - since < _REFUSED_AGAIN_S and count >= least else None

    def has_any(self, now: float) -> bool:
        """Whether anybody was refused a moment ago."""
        return any(now - since < _REFUSED_AGAIN_S for since, _, _ in self._known.values())

    def note(self, client: str, count: int, refusal: Refused, now: float) -> None:
        """So many were refused."""
        recent = {name: known for name, known in self._known.items() if now - known[0] < _REFUSED_AGAIN_S}
        self._known = recent | {client: (now, count, refusal)}  # never changed once others can see it


def not_found(what: str) -> Refused:
    """It is not there, or belongs to somebody else: nobody can tell which."""
    return Refused(404, "not_found", f"no such {what}")


def bad_input(message: str) -> Refused:
    """What the client gave cannot be used."""
    return Refused(422, "input", message)


def too_large(what: str, limit: float, unit: str = "MiB") -> Refused:
    """A limit of the server's settings."""
    return Refused(413, "too_large", f"{what} exceeds the limit of {limit:g} {unit}; send it in parts")


def busy(message: str, retry_after_s: float) -> Refused:
    """There is no room now."""
    return Refused(429, "busy", message, retry_after_s)


def draining(retry_after_s: float) -> Refused:
    """The server is about to end."""
    return Refused(503, "draining", "the server is about to end; ask again later, or another one", retry_after_s)


def store_away() -> Refused:
    """The database does not answer."""
    return Refused(503, "store", "the store does not answer; ask again later, or another server", _STORE_RETRY_S)
