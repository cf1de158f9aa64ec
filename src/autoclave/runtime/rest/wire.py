"""The way to one service and back: addresses are checked, keys put in at the last moment and taken out of answers.

Each request has a connection of its own, so that it is never unclear whether an old one had been closed before it. It
goes to an address that was looked up and checked for it, and no redirect is followed. The real key is in nothing but
the bytes that are sent. What is thrown has no text of the HTTP library, which could have the key.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.quiet import quieten
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.forms import decoded, encoded
from autoclave.runtime.rest.parts import Answer, Call
from autoclave.runtime.vault.addresses import addresses_of, is_public
from autoclave.runtime.vault.dummies import dummy_of
from autoclave.runtime.vault.injection import Outgoing, injected, may_send_again, require_no_override, secret_for
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.targets import plain_path
from autoclave.runtime.vault.traces import Replacer

if TYPE_CHECKING:
    import httpx

_PIECE = 1 << 16
_COMPRESSED = ("gzip", "x-gzip", "deflate")
_SENDING = ("http11.send_request_headers.started", "http2.send_request_headers.started")
KeyOf = Callable[[str], Secret]


class NotSent(HostError):
    """Nothing has reached the service: there was no connection."""


class Lost(AutoclaveError):
    """It was sent, or begun to be, and what became of it nobody saw."""


class Wire:
    """The way to the service of a connection. `refresh` gets a new key under the name of the old one.

    `kept_headers`: those of answers that anybody needs, in small letters; the others are dropped.
    """

    def __init__(
        self,
        connection: ServiceConnection,
        key_of: KeyOf,
        *,
        refresh: Callable[[str], object] | None = None,
        verify: ssl.SSLContext | None = None,
        kept_headers: frozenset[str] = frozenset(),
    ) -> None:
        self._connection, self._key_of, self._refresh = connection, key_of, refresh
        self._verify, self._kept_headers = verify, kept_headers | {"www-authenticate"}
        self._session_key = secrets.token_bytes(32)

    def send(
        self, call: Call, guard: Mapping[str, str] | None = None, before_sending: Callable[[], None] | None = None
    ) -> Answer:
        """Send a request; the answer, without any key. What was refused for a key or for haste is sent again.

        `before_sending` is called when there is a connection, before the first byte of the request.

        Raises:
            InputError: it may not be sent.
            NotSent: nothing was sent.
            Lost: it was, and there is no answer, or none that can be read.
        """
        waited, is_fresh, refused = 0.0, False, None
        while True:
            try:
                answer = self._send_once(call, guard or {}, before_sending or (lambda: None))
            except (InputError, HostError):
                if refused is None:
                    raise
                return refused  # so much is known of what was sent
            challenge = answer.headers.get("www-authenticate", "")
            may_again = bool(guard) or may_send_again(call.method, challenge)
            if answer.status == 401 and self._refresh and self._connection.secret and not is_fresh and may_again:
                with contextlib.suppress(AutoclaveError):
                    self._refresh(self._connection.secret)
                    is_fresh, refused = True, answer
                    continue
            if answer.status == 503 and call.method not in ("GET", "HEAD"):
                return answer  # it may have been done behind what answers
            pause_s = _pause_s(answer)
            if pause_s is None or waited + pause_s > self._connection.most_wait_s:
                return answer
            refused = answer
            time.sleep(pause_s)
            waited += max(pause_s, 0.05)

    def why_not(self, call: Call) -> str:
        """Why a call cannot be sent with the key of the connection; empty if it can."""
        host, port = self._connection.place
        try:
            self._with_key(Outgoing(call.method, host, port, self._connection.prefix + call.target, (), b""))
        except InputError as error:
            return str(error)
        return ""

    def _send_once(self, call: Call, guard: Mapping[str, str], before_sending: Callable[[], None]) -> Answer:
        connection = self._connection
        host, port = connection.place
        target = connection.prefix + call.target
        plain_path(target)
        content = encoded(call.body, call.content_type)
        headers = {**call.headers, **guard}
        headers |= {"Content-Type": call.content_type} if call.body is not None else {}
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        bare = Outgoing(call.method, host, port, target, raw, content)
        require_no_override(bare)
        whole, replacer = self._with_key(bare)
        last: NotSent | None = None
        for address in self._addresses(host, port):
            try:
                return self._exchange(whole, address, before_sending, replacer)
            except NotSent as error:
                last = error
        raise last or NotSent(f"{host}:{port}: there is no address")

    def _addresses(self, host: str, port: int) -> list[str]:
        what = f"requests to {self._connection.base_url}"
        found = addresses_of(host, port, allows_private=self._connection.allows_private, what=what)
        if self._connection.is_tls:
            return found
        if private := [each for each in found if not is_public(each)]:
            return private
        raise InputError(f"host {host}: is not on a private network, so {what} must be https")

    # --- Keys -------------------------------------------------------------------------------------------------------

    def _with_key(self, request: Outgoing) -> tuple[Outgoing, Replacer]:
        """The request with the real key at its place, and what takes it out of whatever comes back.

        Raises:
            InputError: the key may not go there.
        """
        if not self._connection.secret:
            return request, Replacer({})
        secret = self._key_of(self._connection.secret)
        if self._connection.allows_private and not secret.allows_private:
            raise InputError(
                f"service {secret.service}: its key may not go to private networks. Mend: allows_private of the secret"
            )
        dummy = dummy_of(secret.value, secret.service, self._session_key)
        headers, target = list(request.headers), request.target
        if secret.place == "query":
            target += f"{'&' if '?' in target else '?'}{quote(secret.name)}={quote(dummy, safe='')}"
        elif secret.place == "basic":
            pair = base64.b64encode(f"{self._connection.user}:{dummy}".encode())
            headers.append((secret.name.encode(), b"Basic " + pair))
        else:
            word = f"{self._connection.scheme} " if self._connection.scheme else ""
            headers.append((secret.name.encode(), f"{word}{dummy}".encode()))
        dressed = Outgoing(request.method, request.host, request.port, target, headers, request.body)
        whole = injected(dressed, self._allowed(dressed, secret), {secret.service: dummy})
        if secret.place == "basic":  # servers echo the pair as well as the key
            pair = f"{self._connection.user}:{secret.value}"
            return whole, Replacer({secret.value: dummy, pair: f"{self._connection.user}:{dummy}"})
        return whole, Replacer({secret.value: dummy})

    def _allowed(self, request: Outgoing, secret: Secret) -> Secret:
        """The secret, if it is for this request; without a port its hosts are at that of the connection's scheme."""
        port = 443 if request.port == 80 and not self._connection.is_tls else request.port
        return secret_for(Outgoing(request.method, request.host, port, request.target, (), b""), [secret])

    # --- Bytes ------------------------------------------------------------------------------------------------------

    def _exchange(
        self, request: Outgoing, address: str, before_sending: Callable[[], None], replacer: Replacer
    ) -> Answer:
        import_httpx()
        import httpx

        connection = self._connection
        is_sent = False

        def on_event(name: str, _: object) -> None:
            nonlocal is_sent
            if name in _SENDING and not is_sent:
                before_sending()
                is_sent = True

        place = f"[{address}]" if ":" in address else address
        default = 443 if connection.is_tls else 80
        named = request.host if request.port == default else f"{request.host}:{request.port}"
        headers = [(b"host", named.encode()), (b"accept-encoding", b"identity"), *request.headers]
        url = f"{'https' if connection.is_tls else 'http'}://{place}:{request.port}{request.target}"
        told = f"{connection.base_url}: {request.method} {request.target.partition('?')[0][:200]}"
        extensions = {"sni_hostname": request.host, "trace": on_event}
        until = time.monotonic() + connection.timeout_s
        quieten("httpx", "httpcore")
        try:
            with (
                httpx.Client(verify=self._context(), trust_env=False, timeout=connection.timeout_s) as client,
                client.stream(
                    request.method, url, headers=headers, content=request.body, extensions=extensions
                ) as response,
            ):
                content = _content(response, connection.most_response_bytes, until)
                kept = self._headers(response, replacer)
                body = replacer.whole(content)
                return Answer(response.status_code, kept, decoded(body, kept.get("content-type", "")))
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NotSent(f"{told}: no connection ({type(error).__name__}); nothing was sent") from None
        except (httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
            kind = Lost if is_sent else NotSent
            raise kind(f"{told}: no answer that can be read ({type(error).__name__})") from None
        except Lost as error:
            raise Lost(f"{told}: {error}") from None

    def _context(self) -> ssl.SSLContext:
        if self._verify is None:  # without TLS one that trusts nobody: to read the system's takes longer than a request
            is_tls = self._connection.is_tls
            self._verify = ssl.create_default_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._verify

    def _headers(self, response: httpx.Response, replacer: Replacer) -> dict[str, str]:
        pairs = [(name.decode("latin-1").lower(), value) for name, value in response.headers.raw]
        return {name: replacer.whole(value).decode("latin-1") for name, value in pairs if name in self._kept_headers}


def import_httpx() -> None:
    """Look whether the HTTP library is there.

    Raises:
        HostError: it is not.
    """
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise HostError("requests to services need a library. Mend: pip install 'autoclave[runtime]'") from None


def _content(response: Any, most: int, until: float) -> bytes:
    """The body of an answer, unpacked with bounds: few bytes can become very many.

    Raises:
        Lost: it is too large, too slow, or in a form that was not asked for.
    """
    form = response.headers.get("content-encoding", "identity").strip().lower()
    if form not in ("identity", "", *_COMPRESSED):
        raise Lost(f"the answer is encoded as {form[:40]!r}, which was not asked for")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32) if form in _COMPRESSED else None
    content = bytearray()
    for piece in response.iter_raw(_PIECE):
        content += unpacking.decompress(piece, most - len(content) + 1) if unpacking else piece
        if len(content) > most:
            raise Lost(f"the answer is larger than {most} bytes")
        if time.monotonic() > until:
            raise Lost("the answer takes too long")
    return bytes(content)


def _pause_s(answer: Answer) -> float | None:
    """How long, in seconds, to wait before a request that was refused for haste is sent again; None: it was not."""
    given = answer.headers.get("retry-after", "")
    if answer.status == 429 and not given:
        return 1.0
    if answer.status not in (429, 503) or not given:
        return None
    if given.isdecimal():
        return float(given)
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 1.0
