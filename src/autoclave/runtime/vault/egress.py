"""The only way out of a cell: a proxy that lets requests through to the services of an action, and puts their keys in.

Theory of operation. The cell has a network of its own with nothing but a socket that listens, and we have it. A client
in there uses it as its proxy, asks for a tunnel (CONNECT), and speaks TLS in it with us, whose certificate it trusts.
So we see each request whole. It goes on over a connection of our own, to an address that we looked up and
checked, with the certificate of the host verified. What comes back is passed on with every real value replaced by its
dummy. Redirects are passed on as well: the next request is judged like the first.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import h11
import httpx

from autoclave.core import InputError
from autoclave.core.closing import Closing
from autoclave.runtime.vault.addresses import addresses_of
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.dummies import Replacer
from autoclave.runtime.vault.injection import Alarm, Outgoing, host_and_port, injected, secret_for
from autoclave.runtime.vault.secret import Secret

_MOST_CONNECTIONS = 32
_MOST_REQUESTS = 1000
_MOST_REQUEST, _MOST_RESPONSE = 8 << 20, 64 << 20
_IDLE_S, _UPSTREAM_S = 30.0, 60.0
_PIECE = 1 << 16
_DROPPED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-connection te trailer transfer-encoding upgrade content-length "
    b"content-encoding alt-svc".split()
)
Record = Callable[[str, str, Mapping[str, Any]], object]


class Egress(Closing):
    """Lets requests through to the services of `secrets`. `dummies`: what the cell has in place of their values.

    `record` is told of each request, and never gets a value. `verify` are the certificates that services are verified
    by; None for those of the system.
    """

    def __init__(
        self,
        secrets: Sequence[Secret],
        dummies: Mapping[str, str],
        authority: Authority,
        record: Record,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        self._secrets, self._dummies = list(secrets), dict(dummies)
        self._authority, self._record = authority, record
        self._verify = verify or ssl.create_default_context()
        self._replacements = {secret.value: dummies[secret.service] for secret in secrets}
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
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass  # it went away, or speaks no HTTP
        finally:
            with self._lock:
                self._clients.discard(client)
            self._slots.release()

    # --- One client -------------------------------------------------------------------------------------------------

    def _serve(self, client: socket.socket) -> None:
        talk = _Talk(client)
        request, _ = talk.request()
        if request is None:
            return
        if request.method != b"CONNECT":
            talk.refuse(403, "only https goes out of here")
            return
        try:
            host, port = host_and_port(request.target.decode("ascii", "replace"))
            if not any(_may_be_at(secret, host, port) for secret in self._secrets):
                raise InputError(f"{host}:{port} is no host of a service of this action")
        except InputError as error:
            self._refused("CONNECT", request.target.decode("ascii", "replace")[:200], error)
            talk.refuse(403, str(error))
            return
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        names: list[str | None] = []
        context = self._authority.context_for(host)
        context.sni_callback = lambda _, name, __: names.append(name)
        with context.wrap_socket(client, server_side=True) as tunnel:
            if names and names[-1] not in (None, host):
                return  # the tunnel is for one host, and the client wants another
            self._serve_tunnel(_Talk(tunnel), host, port)

    def _serve_tunnel(self, talk: _Talk, host: str, port: int) -> None:
        while True:
            request, body = talk.request()
            if request is None:
                return
            method, target = request.method.decode("ascii"), request.target.decode("ascii", "replace")
            try:
                self._count()
                named = [value.decode("ascii", "replace") for name, value in request.headers if name == b"host"]
                if len(named) != 1 or host_and_port(named[0], 443) != (host, port):
                    raise InputError(f"the request names {', '.join(named)[:100]!r}, the tunnel is to {host}:{port}")
                outgoing = Outgoing(method, host, port, target, list(request.headers), body)
                secret = secret_for(outgoing, self._secrets)
                whole = injected(outgoing, secret, self._dummies)
                address = addresses_of(
                    host, port, allows_private=secret.allows_private, what=f"the secret of {secret.service}"
                )[0]
            except InputError as error:
                self._refused(method, f"{host}:{port}{target.partition('?')[0][:200]}", error)
                talk.refuse(403, str(error))
                return
            if not self._pass_on(talk, whole, secret, address):
                return

    def _pass_on(self, talk: _Talk, request: Outgoing, secret: Secret, address: str) -> bool:
        """Send a request on and the response back; whether the client may go on."""
        place = f"[{address}]" if ":" in address else address
        named = request.host if request.port == 443 else f"{request.host}:{request.port}"
        headers = [*request.headers, (b"host", named.encode()), (b"accept-encoding", b"identity")]
        told = {"method": request.method, "host": named, "path": request.target.partition("?")[0][:500]}
        try:
            with (
                httpx.Client(verify=self._verify, trust_env=False, timeout=_UPSTREAM_S) as client,
                client.stream(
                    request.method,
                    f"https://{place}:{request.port}{request.target}",
                    headers=headers,
                    content=request.body,
                    extensions={"sni_hostname": request.host},
                ) as response,
            ):
                self._record("request", secret.service, {**told, "status": response.status_code})
                return self._answer(talk, response, request.method)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self._record("request", secret.service, {**told, "error": type(error).__name__})
            talk.refuse(502, f"the service cannot be reached ({type(error).__name__})")
            return False

    def _answer(self, talk: _Talk, response: httpx.Response, method: str) -> bool:
        if response.status_code == 101:
            talk.refuse(502, "the service wants another protocol")
            return False
        whole = Replacer(self._replacements)
        headers = [
            (whole.whole(name), whole.whole(value))
            for name, value in response.headers.raw
            if name.lower() not in _DROPPED
        ]
        has_body = method != "HEAD" and response.status_code not in (204, 304)
        talk.begin(response.status_code, headers, has_body=has_body)
        if has_body:
            for piece in _bounded(response.iter_bytes(_PIECE)):
                talk.send(whole.feed(piece))
            talk.send(whole.flush())
        return talk.end()

    def _count(self) -> None:
        with self._lock:
            self._num_requests += 1
            if self._num_requests > _MOST_REQUESTS:
                raise InputError(f"more than {_MOST_REQUESTS} requests")

    def _refused(self, method: str, place: str, error: InputError) -> None:
        kind = "alarm" if isinstance(error, Alarm) else "denied"
        if kind == "alarm":
            self.alarms.append(str(error))
        whole = Replacer(self._replacements).whole(f"{method} {place}".encode()).decode()
        self._record(kind, "egress", {"request": whole, "reason": str(error)})


class _Talk:
    """One side of HTTP/1.1 with a client."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 10)
        self._until = time.monotonic() + _IDLE_S

    def request(self) -> tuple[h11.Request | None, bytes]:
        """The next request, whole; None when there is none."""
        self._until = time.monotonic() + _IDLE_S
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                if time.monotonic() > self._until:
                    raise TimeoutError("the client is too slow")
                self._state.receive_data(self._link.recv(_PIECE))
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

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, has_body: bool) -> None:
        """Begin a response."""
        length = [(b"transfer-encoding", b"chunked")] if has_body else []
        event = h11.Response(status_code=status, headers=[*headers, *length])
        self._link.sendall(self._state.send(event) or b"")

    def send(self, piece: bytes) -> None:
        """A piece of its body."""
        if piece:
            self._link.sendall(self._state.send(h11.Data(data=piece)) or b"")

    def end(self) -> bool:
        """End it; whether another request may come."""
        self._link.sendall(self._state.send(h11.EndOfMessage()) or b"")
        if self._state.our_state is h11.DONE and self._state.their_state is h11.DONE:
            self._state.start_next_cycle()
            return True
        return False

    def refuse(self, status: int, reason: str) -> None:
        """Answer in our own name."""
        if self._state.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        content = f"autoclave: {reason}\n".encode()
        headers = [("content-type", "text/plain"), ("content-length", f"{len(content)}"), ("connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):
            self._link.sendall(self._state.send(h11.Response(status_code=status, headers=headers)) or b"")
            self._link.sendall(self._state.send(h11.Data(data=content)) or b"")
            self._link.sendall(self._state.send(h11.EndOfMessage()) or b"")


def _may_be_at(secret: Secret, host: str, port: int) -> bool:
    request = Outgoing("", host, port, "/", (), b"")
    with contextlib.suppress(InputError):
        secret_for(request, [secret.model_copy(update={"methods": ("",), "paths": ("/**",)})])
        return True
    return False


def _bounded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > _MOST_RESPONSE:
            raise httpx.ReadError("the response is too large")
        yield piece
