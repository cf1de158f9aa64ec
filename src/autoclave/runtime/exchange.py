"""One HTTP request and its complete response on a connection of its own, within limits of size and time.

One deadline covers the whole exchange: a separate thread then closes the connection, however slowly data arrives. No
redirect is followed and no proxy of the environment is used. A truncated response is an error. Errors contain no text
of the HTTP library, which could include keys.
"""

import contextlib
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autoclave.core import AutoclaveError
from autoclave.core.closing import Closing
from autoclave.core.install import needing
from autoclave.runtime.quiet import quieten

_PIECE = 1 << 16
_PACKED = ("gzip", "x-gzip", "deflate")
_CONNECTED, _SENDING = "connection.connect_tcp.complete", "http11.send_request_headers.started"


class NoAnswer(AutoclaveError):
    """No usable response. `is_sent`: whether the request, or part of it, may have arrived."""

    def __init__(self, why: str, *, is_sent: bool = False) -> None:
        super().__init__(why)
        self.is_sent = is_sent


@dataclass(frozen=True, slots=True)
class Received:
    """A response. `is_ended`: whether it declared its own length; else the end of the connection ended it."""

    status: int
    headers: Sequence[tuple[str, bytes]]
    """Names in lower case."""
    body: bytes
    is_ended: bool


def exchange(
    method: str,
    url: str,
    headers: Sequence[tuple[bytes, bytes]],
    content: bytes,
    *,
    verify: ssl.SSLContext,
    within_s: float,
    most_bytes: int,
    address: str = "",
    before_sending: Callable[[], None] | None = None,
) -> Received:
    """Send a request, once.

    Args:
        within_s: time limit of the whole exchange, in seconds.
        most_bytes: size limit of the response body, both compressed and decompressed.
        address: where to connect; the certificate must still be for the host of the URL.
        before_sending: called once connected, before the first byte of the request.

    Raises NoAnswer where there is no usable response, and HostError where the library for it is missing.
    """
    httpx = _library()
    is_sent = False
    with _Deadline(within_s) as deadline:

        def on_event(name: str, info: Any) -> None:
            nonlocal is_sent
            if name == _CONNECTED:
                deadline.ends(info["return_value"].get_extra_info("socket"))
            if name == _SENDING and not is_sent:
                if before_sending:
                    before_sending()
                is_sent = True

        try:
            to = httpx.URL(url)
            given = [(b"host", to.netloc), (b"accept-encoding", b"identity"), *headers]
            extensions = {"trace": on_event, "sni_hostname": to.host}
            to = to.copy_with(host=address) if address else to
            with (
                httpx.Client(verify=verify, trust_env=False, timeout=within_s, follow_redirects=False) as client,
                client.stream(method, to, headers=given, content=content or None, extensions=extensions) as response,
            ):
                told = [(name.decode("latin-1").lower(), value) for name, value in response.headers.raw]
                encoding = b",".join(value for name, value in told if name == "content-encoding")
                body = _unpacked(response.iter_raw(_PIECE), encoding, most_bytes)
        except (httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
            what = "no answer that can be read" if is_sent else "no connection"
            why = f"none within {within_s:.1f} s" if deadline.is_over else type(error).__name__
            raise NoAnswer(f"{what} ({why})", is_sent=is_sent) from None
        if deadline.is_over:
            raise NoAnswer(f"no answer within {within_s:.1f} s", is_sent=is_sent)
    has_no_body = method == "HEAD" or response.status_code in (204, 304)
    is_ended = has_no_body or any(name in ("content-length", "transfer-encoding") for name, _ in told)
    return Received(response.status_code, told, body, is_ended)


class _Deadline(Closing):
    """Closes a connection when its time is over."""

    def __init__(self, within_s: float) -> None:
        self._until = time.monotonic() + within_s
        self._link: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(within_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until

    def ends(self, link: socket.socket) -> None:
        """Set the connection. TLS takes its socket over, so a duplicate is held."""
        with self._lock:
            self._link = link.dup()
        if self.is_over:
            self._end()

    def _end(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._link:
                self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            if self._link:
                self._link.close()
            self._link = None


def _unpacked(pieces: Iterable[bytes], encoding: bytes, most: int) -> bytes:
    """Return the decompressed body of a response, at most `most` bytes, however many members it has."""
    form = encoding.decode("latin-1").strip().lower()
    if form not in ("identity", "", *_PACKED):
        raise NoAnswer(f"the answer is encoded as {form[:40]!r}, which was not asked for", is_sent=True)
    content, unpacking, num_received = bytearray(), None, 0
    for piece in pieces:
        num_received += len(piece)
        if form not in _PACKED:
            content += piece
        while form in _PACKED and piece and len(content) <= most:
            if unpacking is None or unpacking.eof:
                unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)
            content += unpacking.decompress(piece, most - len(content) + 1)
            piece = unpacking.unused_data
        if max(len(content), num_received) > most:
            raise NoAnswer(f"the answer is larger than {most} bytes", is_sent=True)
    if unpacking is not None and not unpacking.eof:
        raise NoAnswer("the answer is cut short", is_sent=True)
    return bytes(content)


def _library() -> Any:
    with needing("requests to services", "runtime"):
        import httpx
    quieten("httpx", "httpcore")
    return httpx
