"""Bodies of requests: decompressed as they come, within limits that hold before and after.

A small piece of compressed data can stand for very much; so little is decompressed at a time that what comes out is
bounded by `_SLICE` times what the format can expand it.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Protocol

import zstandard

from autoclave.service.refusals import Refused, bad_input, too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Require = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_SLICE = 256
"""Bytes of zstd that are decompressed at a time: at most as many blocks of 128 KiB, divided by 4."""
_PIECE = 1 << 20
_WINDOW = 1 << 27


class _Decoder(Protocol):
    def decode(self, data: bytes) -> Iterator[bytes]:
        """What these bytes stand for, in pieces of bounded size."""
        ...

    def end(self) -> None:
        """There are no more bytes."""
        ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)
        self._is_fresh = True

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:  # files may stand one behind the other
                self._inner = zlib.decompressobj(31)
            try:
                yield self._inner.decompress(data, _PIECE)
            except zlib.error:
                raise bad_input("the body is no gzip file, as Content-Encoding says it is") from None
            self._is_fresh = False
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail

    def end(self) -> None:
        if not self._is_fresh and not self._inner.eof:
            raise bad_input("the body is a gzip file that is cut off")


class _Zstd:
    def __init__(self) -> None:
        self._inner = self._fresh()
        self._is_fresh = True

    @staticmethod
    def _fresh() -> Any:
        return zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data:
            part, data = data[:_SLICE], data[_SLICE:]
            if self._inner.eof:
                self._inner = self._fresh()
            try:
                yield self._inner.decompress(part)
            except zstandard.ZstdError:
                raise bad_input("the body is no zstd file, as Content-Encoding says it is") from None
            self._is_fresh = False
            if self._inner.eof and self._inner.unused_data:
                data = self._inner.unused_data + data

    def end(self) -> None:
        if not self._is_fresh and not self._inner.eof:
            raise bad_input("the body is a zstd file that is cut off")


class _Plain:
    def decode(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        pass


_DECODERS: dict[str, Callable[[], _Decoder]] = {"": _Plain, "identity": _Plain, "gzip": _Gzip, "zstd": _Zstd}


class BoundedBodies:
    """An ASGI application around another one, which sees plain bodies within a limit that depends on the path.

    `require` looks at a request when the first of its body is asked for.
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
        limited = _Limited(receive, coding, self._limit_mb(scope["path"]), lambda: self._require(scope))
        await self._app(scope, limited, send)


_OF_CODING = (b"content-encoding", b"content-length")


class _Limited:
    """The messages of a request with its body decompressed; more than the limit is refused."""

    def __init__(self, receive: Receive, coding: str, limit_mb: float, require: Callable[[], Awaitable[None]]) -> None:
        self._receive = receive
        self._require = require
        self._is_first = True
        self._coding = coding
        self._limit_mb = limit_mb
        self._left = int(limit_mb * 2**20)
        self._pieces: Iterator[bytes] = iter(())
        self._decoder: _Decoder | None = None
        self._is_last = False
        self._is_over = False

    async def __call__(self) -> Message:
        if self._is_over:
            return await self._receive()
        if self._is_first:
            await self._require()
            self._is_first = False
        while True:
            for piece in self._pieces:
                if piece:
                    return self._counted(piece)
            if self._is_last:
                self._open().end()
                self._is_over = True
                return {"type": "http.request", "body": b"", "more_body": False}
            message = await self._receive()
            if message["type"] != "http.request":
                self._is_over = True
                return message
            self._is_last = not message.get("more_body", False)
            self._pieces = self._open().decode(message.get("body", b""))

    def _open(self) -> _Decoder:
        if self._decoder is None:
            if self._coding not in _DECODERS:
                raise Refused(415, "input", "Content-Encoding must be gzip or zstd, or left out")
            self._decoder = _DECODERS[self._coding]()
        return self._decoder

    def _counted(self, piece: bytes) -> Message:
        self._left -= len(piece)
        if self._left < 0:
            raise too_large("the request", self._limit_mb)
        return {"type": "http.request", "body": piece, "more_body": True}


async def lines_of(chunks: AsyncIterator[bytes], limit_mb: float) -> AsyncIterator[bytes]:
    """The lines of a body, each within the limit."""
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
