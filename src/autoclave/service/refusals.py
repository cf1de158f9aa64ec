"""Error responses. No message holds a path, an expected answer or a secret."""

import contextlib
import math
from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from autoclave.core import HostError, InputError, JudgeFault, SandboxFault
from autoclave.core.json import rule_of

_STORE_RETRY_S = 2.0
_REFUSED_AGAIN_S = 0.25
_STATUSES = {
    400: "The request cannot be parsed.",
    401: "No valid token.",
    403: "The token does not allow it.",
    404: "It does not exist, or belongs to another client.",
    409: "The idempotency key was used for another request.",
    413: "Too large.",
    415: "An unknown Content-Encoding or Content-Type.",
    422: "The input is not valid; the message gives the rule.",
    429: "No room now; see Retry-After.",
    500: "The server failed.",
    501: "Something is missing on the server's machine.",
    503: "Shutting down, or without its database; see Retry-After.",
}


def described_errors(model: type[BaseModel], more: Mapping[int, str] = MappingProxyType({})) -> dict[int | str, Any]:
    """Return the error statuses for the OpenAPI description, with bodies of this model."""
    texts = {**_STATUSES, **more}
    return {status: {"model": model, "description": text} for status, text in texts.items()}


class Refused(HTTPException):
    """An error response with a status of 4xx or 5xx. `cause`, by default the kind, is for metrics."""

    def __init__(
        self, status: int, kind: str, message: str, retry_after_s: float | None = None, *, cause: str = ""
    ) -> None:
        headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)
        self.kind = kind
        self.cause = cause or kind

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"kind": self.kind, "message": self.detail}}


class RecentRefusals:
    """Requests refused within `_REFUSED_AGAIN_S`. The same again is refused without counting the queue, so that a flood
    of requests does not slow down the clients that are served.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int, Refused]] = {}

    def get(self, client: str, count: int, now: float) -> Refused | None:
        """Return the recent refusal of `count` or fewer programs of the client."""
        since, least, refusal = self._known.get(client, (-math.inf, 0, None))
        return refusal if refusal and now - since < _REFUSED_AGAIN_S and count >= least else None

    def has_any(self, now: float) -> bool:
        return any(now - since < _REFUSED_AGAIN_S for since, _, _ in self._known.values())

    def note(self, client: str, count: int, refusal: Refused, now: float) -> None:
        """Record that `count` programs were refused."""
        recent = {name: known for name, known in self._known.items() if now - known[0] < _REFUSED_AGAIN_S}
        self._known = recent | {client: (now, count, refusal)}  # replaced, never changed: other threads read it


def without_fix(error: HostError) -> str:
    """Return the message without its fix, which is for the operator of the server."""
    return str(error).partition(" Fix:")[0]


@contextlib.contextmanager
def judge_errors_refused(where: str = "") -> Generator[None]:
    """Turn errors of the judge into refusals; `where` precedes their messages."""
    try:
        yield
    except HostError as error:
        raise Refused(501, "host", f"{where}{without_fix(error)}") from None
    except InputError as error:
        raise bad_input(f"{where}{error}") from None
    except (JudgeFault, SandboxFault):
        raise fault() from None


def validation_message(error: RequestValidationError) -> str:
    """Return path and rule of the first error of a request, never the value."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return "the body is not valid JSON"
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
    return f"{where[:200]}: {rule_of(first['msg'])[:300]}"


def fault() -> Refused:
    return Refused(500, "fault", "the judge could not run the program; this is not a result of the program")


def not_found(what: str) -> Refused:
    """Return 404, the same for what does not exist and for what belongs to another client."""
    return Refused(404, "not_found", f"no such {what}")


def unknown_problem(digest: str, where: str = "") -> Refused:
    return Refused(404, "unknown_problem", f"{where}problem: {digest} is not stored here")


def bad_input(message: str) -> Refused:
    return Refused(422, "input", message)


def too_large(what: str, limit: float, unit: str = "MiB") -> Refused:
    """Return 413 for a limit of the server's settings."""
    return Refused(413, "too_large", f"{what} exceeds the limit of {limit:g} {unit}. Fix: send it in parts")


def busy(message: str, retry_after_s: float, cause: str = "queue") -> Refused:
    return Refused(429, "busy", message, retry_after_s, cause=cause)


def draining(retry_after_s: float) -> Refused:
    return Refused(
        503, "draining", "the server is shutting down. Fix: retry later, or use another server", retry_after_s
    )


def store_unavailable() -> Refused:
    return Refused(503, "store", "the store does not respond. Fix: retry later, or use another server", _STORE_RETRY_S)
