"""Contents of nested compressed bytes without a label, in bounded time and memory. Pure."""

import bz2
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MOST, _MOST_MEMBERS, _DEEPEST = 32 << 20, 10_000, 4
_MOST_DICTIONARY = 128 << 20  # of xz -9: 64 MiB
_PREFIX = 4096
_RAW = -zlib.MAX_WBITS
_STREAMS: Mapping[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY),
    b"\x5d\0\0": lambda: lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY),
} | dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), zlib.decompressobj)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_OTHERS = (b"\x1f\x9d", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")
"""First bytes of compress, zstd, lz4, 7z and rar."""
_FAULTS = (zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error)
_FAULTS += (OSError, EOFError, ValueError, NotImplementedError, RuntimeError)


class Unexpandable(Exception):
    """Compressed bytes cannot be expanded within bounds; the message contains none of them."""


def contents(packed: bytes) -> Iterator[bytes]:
    """Yield the contents of compressed bytes, recursively; nothing if they are not compressed.

    Raises Unexpandable where they are damaged, encrypted, of an unsupported kind, too large, or nested too deeply.
    """
    left, waiting = _MOST, [(packed, 0)]
    while waiting:
        content, depth = waiting.pop()
        for inner in _expanded(content, left):
            if depth == _DEEPEST:
                raise Unexpandable("it is compressed too many times")
            left -= len(inner)
            yield inner
            waiting.append((inner, depth + 1))


def _expanded(content: bytes, left: int) -> Iterator[bytes]:
    try:
        if content.startswith(_ZIP):
            yield from _members(content, left)
        elif make := _stream_of(content):
            yield _all_streams(content, make, left)
        elif content.startswith(_OTHERS):
            raise Unexpandable("it is of a kind that is not expanded here")
        elif raw := _raw(content, left):
            yield raw
    except _FAULTS:
        raise Unexpandable("it is damaged or encrypted") from None


def _stream_of(begin: bytes) -> Callable[[], Any] | None:
    make = next((make for mark, make in _STREAMS.items() if begin.startswith(mark)), None)
    if make is zlib.decompressobj or begin.startswith(b"BZh"):
        try:
            make().decompress(begin[:_PREFIX], 1)  # pyright: ignore[reportOptionalCall]
        except (zlib.error, OSError):
            return None  # words that begin like it
    return make


def _all_streams(content: bytes, make: Callable[[], Any], left: int) -> bytes:
    """Expand consecutive streams of one kind, with zeros between them."""
    out = bytearray()
    while content:
        stream = make()
        out += _bounded(stream.decompress(content, left - len(out) + 1), left - len(out))
        if not stream.eof:
            raise Unexpandable("it has no end")
        content = stream.unused_data.lstrip(b"\0")
    return bytes(out)


def _members(content: bytes, left: int) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if len(archive.infolist()) > _MOST_MEMBERS:
            raise Unexpandable("it has too many members")
        for member in archive.infolist():
            with archive.open(member) as file:
                inner = _bounded(file.read(left + 1), left)
            left -= len(inner)
            yield inner


def _raw(content: bytes, left: int) -> bytes:
    """Expand raw deflate; nothing if not all bytes are that."""
    stream = zlib.decompressobj(_RAW)
    try:
        out = _bounded(stream.decompress(content, left + 1), left)
    except zlib.error:
        return b""
    return out if stream.eof and not stream.unused_data else b""


def _bounded(out: bytes, left: int) -> bytes:
    if len(out) > left:
        raise Unexpandable("it expands too much")
    return out
