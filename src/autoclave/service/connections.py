"""HTTP connections within limits that hold before authentication.

A connection is busy while it has a request whose client is authenticated. A server with too many connections closes one
that is not busy for each new one: of the addresses that have most in turn, the one that was silent for longest.
"""

import asyncio
import json
import logging
import math
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr, is_ssl

from autoclave.config import AdmissionConfig
from autoclave.service.refusals import Refused, busy

IDLE_S = 75
_HEADER_BYTES = 16 << 10
_BODY_BYTES_PER_S = 1024
_PIPELINED = 16
_MOST_DESCRIPTORS = 1 << 16
_SURPLUS = 32
"""Connections beyond the limit that are open at a time while all others are busy."""
_CROWDS = 8
"""Addresses with the most connections of which one may be closed for a new one."""
_PROBES = (b"/v1/health", b"/v1/ready")
_WARN_EVERY_S = 10.0
_FAREWELL_S = 0.2
_log = logging.getLogger(__name__)


class Edge:
    """All connections of a server."""

    def __init__(self, admission: AdmissionConfig, tls: ssl.SSLContext | None) -> None:
        """Raise the limit of file descriptors; connections get half of them."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.admission = admission
        self.tls = tls
        self._limit = min(admission.connections, soft // 2)
        self._open: dict[Connection, None] = {}
        self._counts: Counter[str] = Counter()
        self._num_refused, self._next_warning = 0, -math.inf

    def admit(self, new: "Connection") -> None:
        """Take a new connection, and close another one if there are too many."""
        are_many = self._counts[new.address] >= self.admission.connections_per_address
        if are_many or len(self._open) >= self._limit:
            self._num_refused += 1
            crowds = [new.address] if are_many else [address for address, _ in self._counts.most_common(_CROWDS)]
            pairs = ((crowd, one) for crowd in crowds for one in self._open)
            others = (one for crowd, one in pairs if one.address == crowd and not one.is_busy and not one.is_surplus)
            surplus = [] if (silent := next(others, None)) else [one for one in self._open if one.is_surplus]
            new.is_surplus = silent is None
            if silent := silent or (surplus[0] if len(surplus) >= _SURPLUS else None):
                silent.abort()
        self._open[new] = None
        self._counts[new.address] += 1

    def note_request(self, connection: "Connection") -> None:
        """Record that a request began."""
        if connection in self._open:
            self._open[connection] = self._open.pop(connection)

    def forget(self, connection: "Connection") -> None:
        if connection in self._open:
            del self._open[connection]
            self._counts[connection.address] -= 1
            if not self._counts[connection.address]:
                del self._counts[connection.address]

    def close_overdue(self, now: float) -> None:
        for connection in [one for one in self._open if one.is_overdue(now)]:
            connection.abort()
        if self._num_refused and now >= self._next_warning:
            _log.warning("too many connections (limit %d): %d were closed or refused", self._limit, self._num_refused)
            self._num_refused, self._next_warning = 0, now + _WARN_EVERY_S


class Connection(HttpToolsProtocol):
    """One connection."""

    def __init__(self, edge: Edge, **state: Any) -> None:
        super().__init__(**state)
        self._edge = edge
        self._deadline = math.inf
        self._num_unparsed = 0
        """Bytes of a head, or of trailers, since the last part of a body."""
        self._refusal: Refused | None = None
        self._tcp: asyncio.Transport
        self.address = ""
        self.is_surplus = False

    @property
    def is_busy(self) -> bool:
        return self._is_answering and "client" in self.cycle.scope.get("state", {})

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def is_overdue(self, now: float) -> bool:
        if now >= self._deadline and self.is_busy and (not self.cycle.more_body or self.flow.read_paused):
            self._deadline = now + self._edge.admission.body_s  # the client waits for the server
        has_failed = self.transport is None and self._tcp.is_closing()  # pyright: ignore[reportUnnecessaryComparison]
        return now >= self._deadline or has_failed

    def abort(self) -> None:
        self._edge.forget(self)
        self._tcp.abort()

    def _give_time(self, seconds: float) -> None:
        self._deadline = self.loop.time() + seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._edge.tls is None or is_ssl(transport):
            super().connection_made(transport)
        if is_ssl(transport):
            return
        self._tcp = transport
        self.address = (get_remote_addr(transport) or ("", 0))[0]
        self._give_time(self._edge.admission.header_s)
        self._edge.admit(self)
        if self._edge.tls:  # here, so that connections count before their handshake; then this method is called again
            secured = SSLProtocol(self.loop, self, self._edge.tls, cast(Any, None), server_side=True)
            transport.set_protocol(secured)
            secured.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._edge.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        assert self.parser is not None
        self._unset_keepalive_if_required()
        self._num_unparsed += len(data)
        try:
            self.parser.feed_data(data)
            if self._num_unparsed > _HEADER_BYTES:
                raise httptools.HttpParserError
        except httptools.HttpParserUpgrade:
            pass  # the request is answered without
        except httptools.HttpParserError:
            self._refuse()

    def _refuse(self) -> None:
        """Answer what is too large, not HTTP or one too many, and close."""
        refusal = self._refusal or (_TOO_LARGE if self._num_unparsed > _HEADER_BYTES else _NO_HTTP)
        if not self._is_answering:
            body = json.dumps(refusal.body).encode()
            headers = {"Content-Type": "application/json", "Content-Length": len(body), **(refusal.headers or {})}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            self.transport.write(STATUS_LINE[refusal.status_code] + f"{lines}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()
        self.loop.call_later(_FAREWELL_S, self._tcp.abort)  # TLS would wait for the peer

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._is_answering:
            self._give_time(self._edge.admission.header_s)
            self._edge.note_request(self)

    def on_headers_complete(self) -> None:
        self._num_unparsed = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > _HEADER_BYTES:
            self._refusal = _TOO_LARGE
        elif self.is_surplus and self.url not in _PROBES:
            self._refusal = _TOO_MANY
        elif len(self.pipeline) >= _PIPELINED:
            self._refusal = _NO_HTTP
        if self._refusal:
            raise self._refusal
        self._give_time(self._edge.admission.body_s)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_unparsed = 0
        if self._is_answering:
            latest = self.loop.time() + self._edge.admission.body_s
            self._deadline = min(self._deadline + len(body) / _BODY_BYTES_PER_S, latest)
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._give_time(self._edge.admission.header_s if self.cycle.more_body else IDLE_S)


_TOO_LARGE = Refused(431, "too_large", f"the header of the request exceeds the limit of {_HEADER_BYTES >> 10} KiB")
_NO_HTTP = Refused(400, "input", "the request is not valid HTTP/1.1")
_TOO_MANY = busy("too many connections. Fix: retry later, and close connections", 1.0)
