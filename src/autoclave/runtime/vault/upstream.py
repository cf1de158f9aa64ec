"""A request of ours to a service, and its response: over one connection, to one address, verified, and never logged.

The bytes of the request are those that were judged: no library in between reads, completes or repeats them. Redirects
are not followed. The body of the response comes in plain: gzip is undone, and what is compressed in another way, or
does not say that it is, is refused, since a key in it could not be seen.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import h11

from autoclave.runtime.vault.injection import Headers, Outgoing

_TIMEOUT_S = 60.0
_PIECE = 1 << 16
_MOST_RESPONSE = 64 << 20
_GZIP = zlib.MAX_WBITS | 16
_LONGEST_MARK = 4
_MARKS = (b"\x1f\x8b", b"\x1f\x9d", b"\x28\xb5\x2f\xfd")
"""How gzip, compress and zstd begin."""
_ZLIB_MARKS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_HAS_LENGTH = frozenset({"POST", "PUT", "PATCH"})


class ServiceFault(Exception):
    """A service cannot be reached, or its response cannot be passed on; the message has nothing of either."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a service answers; `body` is read as it comes, and raises `ServiceFault` as well."""

    status: int
    headers: Headers
    body: Iterator[bytes]


@contextlib.contextmanager
def asked(request: Outgoing, address: str, verify: ssl.SSLContext) -> Generator[Response]:
    """Send a request to a host at an address.

    Raises:
        ServiceFault: there is no response that can be passed on.
    """
    with contextlib.ExitStack() as opened:
        with _named_faults("cannot be reached"):
            plain = opened.enter_context(socket.create_connection((address, request.port), timeout=_TIMEOUT_S))
            link = opened.enter_context(verify.wrap_socket(plain, server_hostname=request.host))
            talk = _Talk(link)
            talk.say(request)
            head = talk.event()
        if not isinstance(head, h11.Response):
            raise ServiceFault("gave no response")
        headers = head.headers.raw_items()
        has_body = request.method != "HEAD" and head.status_code not in (204, 304)
        yield Response(head.status_code, headers, _plain(headers, talk.pieces()) if has_body else iter(()))


class _Talk:
    """HTTP/1.1 with a service: one request, one response."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._state = link, h11.Connection(h11.CLIENT)

    def say(self, request: Outgoing) -> None:
        """Send a request."""
        named = request.host if request.port == 443 else f"{request.host}:{request.port}"
        headers = [(b"host", named.encode()), *request.headers]
        headers += [(b"accept-encoding", b"identity"), (b"connection", b"close")]
        if not any(name.lower() == b"user-agent" for name, _ in request.headers):
            headers.append((b"user-agent", b"autoclave"))
        if request.body or request.method in _HAS_LENGTH:
            headers.append((b"content-length", b"%d" % len(request.body)))
        begin = h11.Request(method=request.method, target=request.target, headers=headers)
        sent = self._state.send(begin) or b""
        if request.body:
            sent += self._state.send(h11.Data(data=request.body)) or b""
        self._link.sendall(sent + (self._state.send(h11.EndOfMessage()) or b""))

    def event(self) -> h11.Event | type[h11.PAUSED]:
        """What comes next."""
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                self._state.receive_data(self._link.recv(_PIECE))
            elif not isinstance(event, h11.InformationalResponse):
                return event  # pyright: ignore[reportReturnType]  NEED_DATA is dealt with

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes."""
        while True:
            with _named_faults("broke off"):
                event = self.event()
            if not isinstance(event, h11.Data):
                return
            yield bytes(event.data)


@contextlib.contextmanager
def _named_faults(what: str) -> Generator[None]:
    try:
        yield
    except (OSError, h11.ProtocolError) as error:
        raise ServiceFault(f"{what} ({type(error).__name__})") from None


# --- Bodies ----------------------------------------------------------------------------------------------------------


def _plain(headers: Headers, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A body without its compression, up to a size; its first bytes have been looked at.

    Raises:
        ServiceFault: it is compressed in a way that is not undone here.
    """
    given = b",".join(value for name, value in headers if name.lower() == b"content-encoding").lower()
    codings = [word.strip() for word in given.split(b",") if word.strip() not in (b"", b"identity")]
    if codings in ([b"gzip"], [b"x-gzip"]):
        pieces = _without_gzip(pieces)
    elif codings:
        raise ServiceFault("answered compressed though asked not to, in a way in which a key could not be seen")
    begin = b""
    for piece in pieces:
        begin += piece
        if len(begin) >= _LONGEST_MARK:
            break
    if begin.startswith(_MARKS) or _is_zlib(begin):
        raise ServiceFault("answered compressed without saying so; a key in that could not be seen")
    return _bounded(begin, pieces)


def _is_zlib(begin: bytes) -> bool:
    if not begin.startswith(_ZLIB_MARKS):
        return False
    try:
        zlib.decompressobj().decompress(begin, 1)
    except zlib.error:
        return False  # words that begin like it
    return True


def _bounded(begin: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    total = len(begin)
    yield begin
    for piece in pieces:
        total += len(piece)
        if total > _MOST_RESPONSE:
            raise ServiceFault("sent too much")
        yield piece


def _without_gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What was compressed by gzip, in one member or several, in pieces of bounded size."""
    member, is_open = zlib.decompressobj(_GZIP), False
    for piece in pieces:
        rest = piece
        while rest:
            try:
                content = member.decompress(rest, _PIECE)
            except zlib.error:
                raise ServiceFault("sent gzip that is damaged") from None
            is_open, rest = not member.eof, member.unconsumed_tail or member.unused_data
            if content:
                yield content
            if member.eof:
                member = zlib.decompressobj(_GZIP)
    if is_open:
        raise ServiceFault("sent gzip without its end")
