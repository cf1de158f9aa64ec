"""HTTP client of a server: key, time limits, retries; responses as JSON or as a stream of events.

The standard library alone, one connection per call, so that any call can be cut off from another thread.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from autoclave.core import ConfigError, EngineFault, InputError

_BUSY = frozenset({408, 425, 429})
_NEVER = frozenset({501, 505})
"""Status codes for which a retry is useless."""

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
LONGEST_ASKED_WAIT_S = 300.0
"""Longest wait that a server may request, in seconds."""

T = TypeVar("T")


class Unavailable(Exception):
    """Another try may succeed, after `wait_s` seconds if the server said so."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Disconnected(Exception):
    """Another thread ended the call with `Line.cut`."""


@dataclass(slots=True)
class Line:
    """Handle by which another thread cuts a call off."""

    is_cut: threading.Event = field(default_factory=threading.Event)
    socket: socket.socket | None = None

    def cut(self) -> None:
        """End the call, which raises `Disconnected`, and close its connection."""
        self.is_cut.set()
        if self.socket is not None:
            with suppress(OSError):  # it is closed already
                self.socket.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Server:
    """Address of a server, time limits and retries. White space around the key is stripped.

    Raises ConfigError: the key cannot be sent.
    """

    url: str
    timeout_s: float
    retries: int
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not (self.key.strip().isascii() and self.key.strip().isprintable()):  # http.client would show it
            raise ConfigError(f"the key for {self.url} has characters that no key has, such as a line break inside")

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        line: Line | None = None,
        read: Callable[[Any], T] = lambda answer: answer,
    ) -> T:
        """Result of `read` on the answer from JSON, of None if it is empty or not JSON. Tried again as often as is
        allowed, also when `read` raises `Unavailable`.

        Raises:
            EngineFault: the server does not answer.
            InputError: it refuses; the message has its words.
            Disconnected: `line` was cut before a try.
        """
        line, tries = line or Line(), 0
        while True:
            try:
                with self._open(method, path, body, line) as reply:
                    text = reply.read()
                return read(json.loads(text) if text.strip().startswith((b"{", b"[")) else None)
            except (Unavailable, OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                if tries >= self.retries:
                    raise EngineFault(f"{self.url}{path} does not answer: {_reason(error)}") from error
                line.is_cut.wait(waiting_s(tries, error))
                tries += 1

    def only_model(self, setting: str) -> str:
        """Return the name of the model of a server that has one.

        Raises ConfigError: it has several, so that `setting` must name one; or as `ask`.
        """
        listed = self.ask("GET", "/v1/models") or {}
        names = [str(model["id"]) for model in listed.get("data", ())]
        if len(names) != 1:
            raise ConfigError(f"{setting}: {self.url} has {', '.join(names) or 'no model'}. Fix: name one")
        return names[0]

    def events(self, path: str, body: Mapping[str, Any], line: Line) -> Iterator[Any]:
        """Yield each event of the response stream, parsed from JSON.

        Raises:
            Unavailable: another try may succeed.
            Disconnected: `line` was cut.
            InputError: the server refuses the request; the message has its words.
        """
        try:
            with self._open("POST", path, body, line) as reply:
                yield from _data_of(reply)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if line.is_cut.is_set():
                raise Disconnected from None
            if isinstance(error, InputError):
                raise
            raise Unavailable(_reason(error)) from error

    @contextmanager
    def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None, line: Line
    ) -> Generator[http.client.HTTPResponse]:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key.strip()}"
        content = None if body is None else json.dumps(body)
        with closing(kind(parts.netloc, timeout=self.timeout_s)) as connection:
            connection.connect()
            line.socket = connection.sock
            if line.is_cut.is_set():
                raise Disconnected
            connection.request(method, parts.path.rstrip("/") + path, content, headers)
            with connection.getresponse() as reply:
                self._require_success(path, reply)
                yield reply

    def _require_success(self, path: str, reply: http.client.HTTPResponse) -> None:
        if reply.status in _BUSY or (reply.status >= 500 and reply.status not in _NEVER):
            raise Unavailable(f"status {reply.status} {reply.reason}", _retry_after(reply))
        if reply.status >= 300:
            words = reply.read(2000).decode(errors="replace")
            raise InputError(f"{self.url}{path}: refused with status {reply.status}: {' '.join(words.split())[:300]}")


def waiting_s(tries: int, error: BaseException) -> float:
    """Seconds to wait before a retry: doubled each time, or what the server requests."""
    asked = error.wait_s if isinstance(error, Unavailable) else None
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**tries) if asked is None else min(LONGEST_ASKED_WAIT_S, asked)


def _data_of(reply: http.client.HTTPResponse) -> Iterator[Any]:
    """The events of a `text/event-stream`; it must end with `[DONE]`."""
    for line in reply:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)
    raise http.client.HTTPException("the stream broke off")


def _retry_after(reply: http.client.HTTPResponse) -> float | None:
    """Seconds, of a number or of a date."""
    text = reply.headers.get("Retry-After", "").strip()
    if text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:300]
