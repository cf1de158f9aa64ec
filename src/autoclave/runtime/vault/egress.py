"""The only way out of a cell: a proxy that forwards requests to the services of an action, and inserts their keys.

Theory of operation. The cell has a network of its own with nothing but a listening socket, which we serve. A client in
the cell uses it as its proxy, asks for a tunnel (CONNECT), and speaks TLS in it with us, whose certificate it trusts.
So we see each complete request. It is forwarded over a connection of our own, to an address that we resolved and
checked, with the certificate of the host verified. A connection is for one request. The response is read completely,
and passed on with every real value replaced by its dummy; a content encoding other than gzip or deflate is refused, and
so is compressed content without a label that has a key, or cannot be expanded. Redirects are passed on as well: the
next request is judged like the first.
"""

import contextlib
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.exchange import NoAnswer, Received, exchange
from autoclave.runtime.vault.authority import Authority
from autoclave.runtime.vault.compressed import Unexpandable, contents
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.injection import (
    HOP_BY_HOP,
    Alarm,
    Outgoing,
    host_and_port,
    injected,
    is_at,
    judged,
    may_send_again,
    refuse_dummies,
    words_of,
)
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.targets import addresses_of
from autoclave.runtime.vault.traces import Replacer, found_in
from autoclave.runtime.vault.vault import Record

if TYPE_CHECKING:
    from autoclave.runtime.keys import Keys

_MOST_CONNECTIONS = 32
_MOST_REQUESTS = 1000
_MOST_REQUEST, _MOST_RESPONSE = 8 << 20, 64 << 20
_IDLE_S, _WITHIN_S = 30.0, 120.0
_PIECE = 1 << 16
_DROPPED = HOP_BY_HOP | {b"content-length", b"content-encoding", b"alt-svc"}


class Egress:
    """Forwards requests to the services of `secrets`. `dummies`: what the cell has in place of their values.

    `record` is called with each request, and never gets a value. `keys` renews OAuth 2 tokens, and has the certificates
    that verify services.
    """

    def __init__(
        self, secrets: Sequence[Secret], dummies: Mapping[str, str], authority: Authority, record: Record, keys: "Keys"
    ) -> None:
        self._secrets, self._dummies = list(secrets), dict(dummies)
        self._replacements = {secret.value: dummies[secret.service] for secret in secrets}
        """Dummies by all present and former values."""
        self._after_refusal: set[str] = set()
        self._authority, self._record, self._keys = authority, record, keys
        self._verify = keys.verify or ssl.create_default_context()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock, self._num_requests = threading.Lock(), 0
        self._clients: set[socket.socket] = set()
        self.alarms: list[str] = []
        """Reports of dummies where they do not belong."""

    @contextlib.contextmanager
    def serve(self, door: socket.socket) -> Generator[None]:
        """Serve a listening socket for the duration of the block; open requests are aborted at its end."""
        with ThreadPoolExecutor(_MOST_CONNECTIONS + 1, thread_name_prefix="egress") as threads:
            threads.submit(self._accept, door, threads)
            try:
                yield
            finally:
                with self._lock:
                    links = [door, *self._clients]
                for link in links:
                    with contextlib.suppress(OSError):
                        link.shutdown(socket.SHUT_RDWR)  # wakes its thread

    def _accept(self, door: socket.socket, threads: ThreadPoolExecutor) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # the end
            while True:
                client, _ = door.accept()
                self._slots.acquire()
                threads.submit(self._guarded, client)

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

    def _serve(self, client: socket.socket) -> None:
        talk = _Talk(client)
        with self._refusing(talk, ""):
            request, body = talk.read()
            place = request.target.decode("ascii", "replace")
            refuse_dummies(bytes(talk.raw) + b"\n" + body, self._dummies, place)
            if request.method != b"CONNECT":
                raise InputError("only https goes out of here")
            host, port = host_and_port(place)
            if not any(is_at(host, port, secret) for secret in self._secrets):
                raise InputError(f"{host}:{port} is no host of a service of this action")
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            context = self._authority.context_for(host)
            context.sni_callback = lambda _, name, __: self._require_name(name, host)
            with context.wrap_socket(client, server_side=True) as tunnel:
                self._serve_tunnel(_Talk(tunnel), host, port)

    def _serve_tunnel(self, talk: "_Talk", host: str, port: int) -> None:
        with self._refusing(talk, f"{host}:{port}"):
            request, body = talk.read()
            method, target = request.method.decode("ascii"), request.target.decode("ascii")
            outgoing = Outgoing(method, host, port, target, list(request.headers.raw_items()), body)
            secret = self._valid(judged(outgoing, self._secrets, self._dummies))
            whole = injected(outgoing, secret, self._dummies)
            self._count()
            whose = f"the secret of {secret.service}"
            address = addresses_of(host, port, allows_private=secret.allows_private, what=whose)[0]
            response = self._sent(whole, secret, address)
            if renewed := self._another(response, whole, secret):
                response = self._sent(injected(outgoing, renewed, self._dummies), renewed, address)
            headers = [
                (self._without_values(name.title().encode("latin-1")), self._without_values(value))
                for name, value in response.headers
                if name.encode("latin-1") not in _DROPPED
            ]
            has_body = method != "HEAD" and response.status not in (204, 304)
            talk.respond(response.status, headers, self._without_values(response.body) if has_body else None)

    @contextlib.contextmanager
    def _refusing(self, talk: "_Talk", place: str) -> Generator[None]:
        """Answer and record refusals in the block; look for dummies in malformed requests, too."""
        try:
            try:
                yield
            except h11.RemoteProtocolError:
                refuse_dummies(bytes(talk.raw), self._dummies, place or "the proxy")
                raise InputError("this is no request of HTTP/1.1") from None
        except (NoAnswer, Unexpandable) as error:
            talk.refuse(502, f"the service gave no usable answer: {error}")
        except (InputError, HostError) as error:
            self._refused(f"{talk.method} {place}{talk.path}", error)
            talk.refuse(403 if isinstance(error, InputError) else 502, str(error))

    def _require_name(self, name: str | None, host: str) -> int | None:
        """Return the alert for a TLS client that names another host than that of the tunnel; else None."""
        if name in (None, host):
            return None
        try:
            refuse_dummies(str(name).encode(), self._dummies, str(name))
            raise InputError(f"the client names {str(name)[:100]!r} in TLS")
        except InputError as error:
            self._refused(f"CONNECT {host}", error)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    def _sent(self, request: Outgoing, secret: Secret, address: str) -> Received:
        """Send a request to an address. Raises NoAnswer or Unexpandable where no response can be passed on."""
        about = {"method": request.method, "host": request.place, "path": request.target.partition("?")[0][:500]}
        headers = [(b"user-agent", b"autoclave"), *request.headers]
        if any(name.lower() == b"user-agent" for name, _ in request.headers):
            headers = list(request.headers)
        try:
            response = exchange(
                request.method,
                f"https://{request.place}{request.target}",
                headers,
                request.body,
                verify=self._verify,
                within_s=_WITHIN_S,
                most_bytes=_MOST_RESPONSE,
                address=address,
            )
            if any(found_in(each, {value: value for value in self._replacements}) for each in contents(response.body)):
                raise Unexpandable("a key is in something compressed")
        except (NoAnswer, Unexpandable) as error:
            self._record("request", secret.service, {**about, "error": str(error)})
            raise
        self._record("request", secret.service, {**about, "status": response.status})
        return response

    def _without_values(self, content: bytes) -> bytes:
        return Replacer(self._replacements).whole(content)

    def _valid(self, secret: Secret) -> Secret:
        """Return the secret, renewed if it is about to expire. Raises InputError or HostError where that fails."""
        if secret.authorization is None or not secret.authorization.is_expiring(time.time()):
            return secret
        return self._taken(secret, self._keys.secret(secret.service))

    def _another(self, response: Received, sent: Outgoing, refused: Secret) -> Secret | None:
        """Return the secret with another token, if the service refused this one and the request may be repeated.

        Such a token is not renewed when it is refused as well: otherwise code could make its provider be asked without
        limit.
        """
        is_renewable = refused.authorization is not None and refused.value not in self._after_refusal
        has_value = response.status == 401 and found_in(words_of(sent), {refused.service: refused.value})
        if not is_renewable or not has_value:
            return None
        try:
            renewed = self._taken(refused, self._keys.refreshed(refused.service, refused.value))
        except AutoclaveError as error:
            place = f"{sent.method} {sent.place}"
            self._record("denied", refused.service, {"request": place, "reason": str(error)})
            return None
        self._after_refusal.add(renewed.value)
        challenge = b", ".join(value for name, value in response.headers if name == "www-authenticate")
        return renewed if may_send_again(sent.method, challenge.decode("latin-1")) else None

    def _taken(self, before: Secret, found: Secret) -> Secret:
        """Return the secret with a new token, with the same restrictions. The cell keeps its dummy."""
        renewed = before.model_copy(update={"value": found.value, "authorization": found.authorization})
        with self._lock:
            self._replacements = {**self._replacements, renewed.value: self._dummies[renewed.service]}
            self._secrets = [renewed if each.service == renewed.service else each for each in self._secrets]
        return renewed

    def _count(self) -> None:
        with self._lock:
            self._num_requests += 1
            if self._num_requests > _MOST_REQUESTS:
                raise InputError(f"more than {_MOST_REQUESTS} requests")

    def _refused(self, request: str, error: AutoclaveError) -> None:
        kind = "alarm" if isinstance(error, Alarm) else "denied"
        if kind == "alarm":
            self.alarms.append(str(error))
        whole = self._without_values(request.encode()).decode()
        self._record(kind, "egress", {"request": whole, "reason": str(error)})


class _Talk:
    """One request of a client over HTTP/1.1, and its response."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 10)
        self.raw = bytearray()
        """The bytes received."""
        self.method = self.path = ""

    def read(self) -> tuple[h11.Request, bytes]:
        """Return the request and its body. Raises OSError where there is none, or it is too slow or too large."""
        until = time.monotonic() + _IDLE_S
        request: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._state.next_event()
            if event is h11.NEED_DATA:
                if time.monotonic() > until:
                    raise TimeoutError("the client is too slow")
                piece = self._link.recv(_PIECE)
                self.raw += piece
                self._state.receive_data(piece)
            elif isinstance(event, h11.Request):
                request = event
                self.method = event.method.decode("ascii")
                self.path = event.target.partition(b"?")[0].decode("ascii", "replace")[:200]
                if event.method == b"CONNECT":
                    return request, b""
                if any(name == b"expect" for name, _ in event.headers):
                    self._link.sendall(self._state.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MOST_REQUEST:
                    raise OSError("the request is too large")
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return request, bytes(body)
            else:
                raise ConnectionError("there is no request")

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes | None) -> None:
        length = [] if body is None else [(b"content-length", b"%d" % len(body))]
        whole = [*headers, *length, (b"connection", b"close")]
        events: list[Any] = [h11.Response(status_code=status, headers=whole)]
        events += [h11.Data(data=body)] if body else []
        for event in (*events, h11.EndOfMessage()):
            self._link.sendall(self._state.send(event) or b"")

    def refuse(self, status: int, reason: str) -> None:
        if self._state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):
                self.respond(status, [(b"content-type", b"text/plain")], f"autoclave: {reason}\n".encode())


if TYPE_CHECKING:
    from autoclave.runtime.keys import Keys

_CERTIFICATE, _FILES = "/etc/autoclave-cell.pem", "/secrets"
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


@dataclass(frozen=True, slots=True)
class CredentialBundle:
    """Additions to a command: see `workspaces.SealedCommand`. `alarms` grows while it runs."""

    environment: Mapping[str, str]
    shown: Sequence[tuple[str, str]]
    serve: Callable[[socket.socket], AbstractContextManager[Any]]
    alarms: Sequence[str]


class CellSecrets:
    """Gives cells the use of keys. Dummies stay the same for the life of this object.

    `keys` gives secrets, and renews tokens. `may_use` returns whether a service is granted.
    """

    def __init__(self, keys: "Keys", record: Record, may_use: Callable[[str], bool]) -> None:
        self._keys, self._record, self._may_use = keys, record, may_use
        self._dummies = dict[str, str]()
        self._session_key = secrets.token_bytes(32)
        self._authority = Authority()

    @contextlib.contextmanager
    def bundle(self, services: Sequence[str], folder: Path, port: int, purpose: str) -> Generator[CredentialBundle]:
        """Yield what a command gets for these services. Its files are put into `folder`.

        Raises InputError where there is no secret of a service, or it is not granted.
        """
        for service in services:
            if not self._may_use(service):
                raise InputError(f"services/{service}: is not granted, so no request to it is allowed")
        found = [self._keys.secret(service, purpose) for service in dict.fromkeys(services)]
        (folder / "certificate.pem").write_bytes(self._authority.certificate)
        shown = [(str(folder / "certificate.pem"), _CERTIFICATE)]
        environment = {str(name): _CERTIFICATE for name in _TRUST}
        environment |= dict.fromkeys(_PROXY, f"http://127.0.0.1:{port}")
        dummies = dict[str, str]()
        for secret in found:
            dummy = dummies[secret.service] = self._dummies.setdefault(
                secret.service, dummy_of(secret.value, secret.service, self._session_key)
            )
            environment[secret.variable] = dummy
            if secret.is_file:
                (folder / f"dummy-{secret.service}").write_text(dummy)
                shown.append((str(folder / f"dummy-{secret.service}"), f"{_FILES}/{secret.service}"))
                environment[secret.variable] = f"{_FILES}/{secret.service}"
        egress = Egress(found, dummies, self._authority, self._record, self._keys)
        yield CredentialBundle(environment, shown, egress.serve, egress.alarms)
