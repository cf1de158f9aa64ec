"""Decompress request bodies as they arrive, within a size limit.

A few compressed bytes can expand to very many, so input is decompressed in slices that bound each piece of output.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any

import zstandard

from autoclave.service.refusals import Refused, bad_input, too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Require = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_WINDOW = 1 << 27
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


class BoundedBodies:
    """ASGI middleware: the application gets decompressed bodies within a limit that depends on the path.

    `require` checks a request before the first part of its body is read.
    """

    def __init__(self, app: App, limit_mb: Callable[[str], float], require: Require) -> None:
        self._app = app
        self._limit_mb = limit_mb
        self._require = require

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
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

    async def _messages(
        self, scope: MutableMapping[str, Any], receive: Receive, coding: str
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a request with the body decompressed; a body above the limit is refused."""
        await self._require(scope)
        if coding not in ("", "identity", *_FORMATS):
            raise Refused(415, "input", "Content-Encoding must be gzip or zstd, or left out")
        decoder = _Decoder(coding) if coding in _FORMATS else None
        limit_mb = self._limit_mb(scope["path"])
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
                if piece:
                    yield {"type": "http.request", "body": piece, "more_body": True}
        if decoder:
            decoder.end()
        yield {"type": "http.request", "body": b"", "more_body": False}


_OF_CODING = (b"content-encoding", b"content-length")


async def lines_of(chunks: AsyncIterator[bytes], limit_mb: float) -> AsyncIterator[bytes]:
    """Yield the lines of a body; a line above the limit is refused."""
    limit, pending = int(limit_mb * 2**20), bytearray()
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            pending += chunk[start:end]
            if len(pending) > limit:
                raise too_large("a line", limit_mb)
            yield bytes(pending)
            pending.clear()
            start = end + 1
        pending += chunk[start:]
        if len(pending) > limit:
            raise too_large("a line", limit_mb)
    if pending:
        yield bytes(pending)
