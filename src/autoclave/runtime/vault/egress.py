"""The only way out of a cell: a proxy that lets requests through to the services of an action, and puts their keys in.

Theory of operation. The cell has a network of its own with nothing but a socket that listens, and we have it. A client
in there uses it as its proxy, asks for a tunnel (CONNECT), and speaks TLS in it with us, whose certificate it trusts.
So we see each request whole. It goes on over a connection of our own, to an address that we looked up and
checked, with the certificate of the host verified. What comes back is read whole, and passed on with every real value
replaced by its dummy. Redirects are passed on as well: the next request is judged like the first.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import h11

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.closing import Closing
from autoclave.runtime.exchange import Received
from autoclave.runtime.vault.addresses import addresses_of
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.injection import (
    Alarm,
    Outgoing,
    has_value,
    host_and_port,
    injected,
    is_at,
    judged,
    may_send_again,
    refuse_dummies,
)
from autoclave.runtime.vault.live import LiveSecrets, Tokens
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.upstream import ServiceFault, asked

_MOST_CONNECTIONS = 32
_MOST_REQUESTS = 1000
_MOST_REQUEST = 8 << 20
_IDLE_S, _UPSTREAM_S = 30.0, 60.0
_PIECE = 1 << 16
_DROPPED = {"connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer", "transfer-encoding"}
_DROPPED |= {"upgrade", "content-length", "content-encoding", "alt-svc"}
Record = Callable[[str, str, Mapping[str, Any]], object]


class Egress(Closing):
    """Lets requests through to the services of `secrets`. `dummies`: what the cell has in place of their values.

    `record` is told of each request, and never gets a value. `verify` are the certificates that services are verified
    by; None for those of the system. `tokens` renews what was got by OAuth 2.
    """

    def __init__(
        self,
        secrets: Sequence[Secret],
        dummies: Mapping[str, str],
        authority: Authority,
        record: Record,
        verify: ssl.SSLContext | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._live = LiveSecrets(secrets, dummies, tokens)
        self._authority, self._record = authority, record
        self._verify = verify or ssl.create_default_context()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock, self._num_requests = threading.Lock(), 0
        self._clients: set[socket.socket] = set()
        self.alarms: list[str] = []
        """What dummies were seen where they do not belong."""

    def close(self) -> None:
        """Break off what is still going on."""
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def serve(self, door: socket.socket) -> Generator[None]:
        """Serve a listening socket for the length of the block."""
        thread = threading.Thread(target=self._accept, args=(door,), name="egress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self.close()
            thread.join(_UPSTREAM_S)

    def _accept(self, door: socket.socket) -> None:
        threads: list[threading.Thread] = []
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                break
            self._slots.acquire()
            threads = [thread for thread in threads if thread.is_alive()]
            threads.append(threading.Thread(target=self._guarded, args=(client,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(_UPSTREAM_S)

    def _guarded(self, client: socket.socket) -> None:
        with self._lock:
            self._clients.add(client)
        try:
            client.settimeout(_IDLE_S)
            with client:
                self._serve(client)
        except (OSError, h11.LocalProtocolError):
            pass  # it went away
        finally:
            with self._lock:
                self._clients.discard(client)
            self._slots.release()

    # --- One client -------------------------------------------------------------------------------------------------

    def _serve(self, client: socket.socket) -> None:
        talk = _Talk(client)
        request, body = self._request(talk, "the proxy")
        if request is None:
            return
        place = request.target.decode("ascii", "replace")
        try:
            words = [request.method, request.target, body, *(word for pair in request.headers for word in pair)]
            refuse_dummies(b"\n".join(words), self._live.dummies, place)
            if request.method != b"CONNECT":
                raise InputError("only https goes out of here")
            host, port = host_and_port(place)
            if not any(is_at(host, port, secret) for secret in self._live.all()):
                raise InputError(f"{host}:{port} is no host of a service of this action")
        except InputError as error:
            self._refused(request.method.decode("ascii"), place[:200], error)
            talk.refuse(403, str(error))
            return
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        context = self._authority.context_for(host)
        context.sni_callback = lambda _, name, __: self._require_name(name, host)
        with context.wrap_socket(client, server_side=True) as tunnel:
            self._serve_tunnel(_Talk(tunnel), host, port)

    def _serve_tunnel(self, talk: _Talk, host: str, port: int) -> None:
        while True:
            request, body = self._request(talk, f"{host}:{port}")
            if request is None:
                return
            method, target = request.method.decode("ascii"), request.target.decode("ascii")
            try:
                outgoing = Outgoing(method, host, port, target, list(request.headers.raw_items()), body)
                secret = self._live.valid(judged(outgoing, self._live.all(), self._live.dummies))
                whole = injected(outgoing, secret, self._live.dummies)
                self._count()
                whose = f"the secret of {secret.service}"
                address = addresses_of(host, port, allows_private=secret.allows_private, what=whose)[0]
            except (InputError, HostError) as error:
                self._refused(method, f"{host}:{port}{target.partition('?')[0][:200]}", error)
                talk.refuse(403 if isinstance(error, InputError) else 502, str(error))
                return
            if not self._pass_on(talk, outgoing, whole, secret, address):
                return

    def _request(self, talk: _Talk, place: str) -> tuple[h11.Request | None, bytes]:
        """The next request; None when there is none, or what came is none, in which dummies are looked for as well."""
        try:
            return talk.request()
        except h11.RemoteProtocolError:
            error = InputError("this is no request of HTTP/1.1")
            try:
                refuse_dummies(bytes(talk.raw), self._live.dummies, place)
            except Alarm as alarm:
                error = alarm
            self._refused("", place, error)
            talk.refuse(400, str(error))
            return None, b""

    def _require_name(self, name: str | None, host: str) -> int | None:
        """A tunnel is for one host: what a TLS client is told that wants another one."""
        if name in (None, host):
            return None
        try:
            refuse_dummies(str(name).encode(), self._live.dummies, str(name))
            raise InputError(f"the client names {str(name)[:100]!r} in TLS")
        except InputError as error:
            self._refused("CONNECT", host, error)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    def _pass_on(self, talk: _Talk, outgoing: Outgoing, whole: Outgoing, secret: Secret, address: str) -> bool:
        """Send a request on and the response back; whether the client may go on. `whole` has the value of `secret`."""
        try:
            response = self._sent(whole, secret, address)
            if renewed := self._another(response, whole, secret):
                response = self._sent(injected(outgoing, renewed, self._live.dummies), renewed, address)
                if response.status != 401:
                    self._live.accepted(renewed)
        except ServiceFault as fault:
            self._record("request", secret.service, {**_told(whole), "error": str(fault)})
            talk.refuse(502, f"the service {fault}")
            return False
        replacer = self._live.replacer()
        headers = [
            (replacer.whole(name.title().encode("latin-1")), replacer.whole(value))
            for name, value in response.headers
            if name not in _DROPPED
        ]
        has_body = whole.method != "HEAD" and response.status not in (204, 304)
        return talk.respond(response.status, headers, replacer.whole(response.body) if has_body else None)

    def _sent(self, request: Outgoing, secret: Secret, address: str) -> Received:
        response = asked(request, address, self._verify, self._live.are_in)
        self._record("request", secret.service, {**_told(request), "status": response.status})
        return response

    def _another(self, response: Received, sent: Outgoing, secret: Secret) -> Secret | None:
        """The secret with another token, if the service refused this one and the request may be sent again with it."""
        if not has_value(sent, secret):
            return None
        if response.status != 401:
            self._live.accepted(secret)
            return None
        try:
            renewed = self._live.another(secret)
        except AutoclaveError as error:
            place = f"{sent.method} {sent.place}"
            self._record("denied", secret.service, {"request": place, "reason": str(error)})
            return None
        challenge = b", ".join(value for name, value in response.headers if name == "www-authenticate")
        return renewed if may_send_again(sent.method, challenge.decode("latin-1")) else None

    def _count(self) -> None:
        with self._lock:
            self._num_requests += 1
            if self._num_requests > _MOST_REQUESTS:
                raise InputError(f"more than {_MOST_REQUESTS} requests")

    def _refused(self, method: str, place: str, error: AutoclaveError) -> None:
        kind = "alarm" if isinstance(error, Alarm) else "denied"
        if kind == "alarm":
            self.alarms.append(str(error))
        whole = self._live.replacer().whole(f"{method} {place}".encode()).decode()
        self._record(kind, "egress", {"request": whole, "reason": str(error)})


class _Talk:
    """One side of HTTP/1.1 with a client."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 10)
        self.raw = bytearray()
        """What came of the present request, byte by byte."""
        self._until = time.monotonic() + _IDLE_S

    def request(self) -> tuple[h11.Request | None, bytes]:
        """The next request, whole; None when there is none."""
        self._until = time.monotonic() + _IDLE_S
        self.raw = bytearray(self._state.trailing_data[0])
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                if time.monotonic() > self._until:
                    raise TimeoutError("the client is too slow")
                piece = self._link.recv(_PIECE)
                self.raw += piece
                self._state.receive_data(piece)
            elif isinstance(event, h11.Request):
                request = event
                if event.method == b"CONNECT":
                    return request, b""
                if any(name == b"expect" for name, _ in event.headers):
                    self._link.sendall(self._state.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MOST_REQUEST:
                    raise OSError("the request is too large")
            elif isinstance(event, h11.EndOfMessage):
                return request, bytes(body)
            else:
                return None, b""

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes | None) -> bool:
        """Send a response; whether another request may come."""
        length = [] if body is None else [(b"content-length", b"%d" % len(body))]
        events: list[Any] = [h11.Response(status_code=status, headers=[*headers, *length])]
        events += [h11.Data(data=body)] if body else []
        for event in (*events, h11.EndOfMessage()):
            self._link.sendall(self._state.send(event) or b"")
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
            return True
        return False

    def refuse(self, status: int, reason: str) -> None:
        """Answer in our own name."""
        if self._state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):
                headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
                self.respond(status, headers, f"autoclave: {reason}\n".encode())


def _told(request: Outgoing) -> dict[str, Any]:
    """What is recorded of a request."""
    return {"method": request.method, "host": request.place, "path": request.target.partition("?")[0][:500]}
