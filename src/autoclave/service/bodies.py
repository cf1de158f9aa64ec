"""Decompress request bodies as they arrive, within a size limit.

A few compressed bytes can expand to very many, so input is decompressed in slices that bound each piece of output.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import zstandard
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoclave.service.refusals import Refused, bad_input, too_large

_WINDOW = 1 << 27
_PART = 1 << 16
_MOST_LINES = 1_000_000
_FORMATS: dict[str, tuple[Callable[[], Any], int]] = {
    "gzip": (lambda: zlib.decompressobj(31), 1024),
    "zstd": (lambda: zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj(), 256),
}
"""Decompressor, and bytes to decompress at a time, which expand to at most 1 MiB (gzip) or 8 MiB (zstd)."""


class _Decoder:
    """Decompressor of one body, which may be several files."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._new, self._slice = _FORMATS[coding]
        self._inner: Any = None

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Decompress bytes into pieces of bounded size."""
        while data:
            part, data = data[: self._slice], data[self._slice :]
            if self._inner is None or self._inner.eof:
                self._inner = self._new()
            try:
                yield self._inner.decompress(part)
            except (zlib.error, zstandard.ZstdError):
                raise bad_input(f"the body is not a {self._coding} file; Content-Encoding says that it is") from None
            if self._inner.eof:
                data = self._inner.unused_data + data

    def end(self) -> None:
        if self._inner is not None and not self._inner.eof:
            raise bad_input(f"the body is a truncated {self._coding} file")


class Values:
    """Counts the commas outside of strings in a JSON text that arrives in parts: it has about as many values, and each
    takes time and memory to parse and to check.
    """

    def __init__(self, limit: int, what: str = "the request") -> None:
        self._limit = self._left = limit
        self._what = what
        self._is_string = False
        self._cut = b""

    def add(self, part: bytes) -> None:
        part = self._cut + part
        end = len(part) - (len(part) - len(part.rstrip(b"\\"))) % 2  # the first half of an escape waits
        part, self._cut = part[:end], part[end:]
        pieces = part.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        self._left -= sum(piece.count(b",") for piece in pieces[self._is_string :: 2])
        self._is_string ^= len(pieces) % 2 == 0
        if self._left < 0:
            raise too_large(self._what, self._limit, "values")


class BoundedBodies:
    """ASGI middleware: the application gets decompressed bodies within limits that depend on the path, in MiB and, if
    the body is JSON, in values.

    `require` checks a request before the first part of its body is read. Other requests go on between two parts.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Callable[[str], tuple[float, int | None]],
        require: Callable[[Scope], Awaitable[None]],
    ) -> None:
        self._app = app
        self._limits = limits
        self._require = require

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        if coding:
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() not in _OF_CODING]}
        messages = self._messages(scope, receive, coding)

        async def limited() -> Message:
            return await anext(messages, None) or await receive()

        await self._app(scope, limited, send)

    async def _messages(self, scope: Scope, receive: Receive, coding: str) -> AsyncGenerator[Message]:
        """Yield the messages of a request with the body decompressed; a body above the limit is refused."""
        await self._require(scope)
        if coding not in ("", "identity", *_FORMATS):
            raise Refused(415, "input", "Content-Encoding must be gzip or zstd, or left out")
        decoder = _Decoder(coding) if coding in _FORMATS else None
        limit_mb, most_values = self._limits(scope["path"])
        values = Values(most_values) if most_values else None
        left, is_last = int(limit_mb * 2**20), False
        while not is_last:
            message = await receive()
            if message["type"] != "http.request":
                yield message
                return
            is_last = not message.get("more_body", False)
            data = message.get("body", b"")
            for piece in decoder.decode(data) if decoder else (data,):
                left -= len(piece)
                if left < 0:
                    raise too_large("the request", limit_mb)
                for start in range(0, len(piece), _PART):
                    part = piece[start : start + _PART]
                    if values:
                        values.add(part)
                    yield {"type": "http.request", "body": part, "more_body": True}
                    await asyncio.sleep(0)
        if decoder:
            decoder.end()
        yield {"type": "http.request", "body": b"", "more_body": False}


_OF_CODING = (b"content-encoding", b"content-length")


async def lines_of(chunks: AsyncIterator[bytes], limit_mb: float) -> AsyncIterator[bytes]:
    """Yield the lines of a body; a line above the limit is refused, and so are too many lines, empty ones included."""
    limit, pending, count = int(limit_mb * 2**20), bytearray(), 0
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        count += len(ends)
        if count > _MOST_LINES:
            raise too_large("the upload", _MOST_LINES, "lines")
        for end in (*ends, None):
            pending += rest if end is None else end
            if len(pending) > limit:
                raise too_large("a line", limit_mb)
            if end is not None:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)
