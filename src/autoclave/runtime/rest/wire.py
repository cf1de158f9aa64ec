"""The way to one service and back: addresses are checked, keys put in at the last moment and taken out of answers.

Each request has a connection of its own, so that it is never unclear whether an old one had been closed before it. It
goes to an address that was looked up and checked for it, and no redirect is followed. The real key is in nothing but
the bytes that are sent. What is thrown has no text of the HTTP library, which could have the key.
"""

import base64
import contextlib
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from urllib.parse import quote

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.core.json import shown
from autoclave.runtime.exchange import NoAnswer, Received, exchange
from autoclave.runtime.rest.connection import ServiceConnection
from autoclave.runtime.rest.forms import KEY, decoded, encoded
from autoclave.runtime.rest.parts import Answer, Call
from autoclave.runtime.vault.injection import Outgoing, may_send_again, require_no_override, secret_for
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.targets import addresses_of, is_public, plain_path
from autoclave.runtime.vault.traces import Replacer

KeyOf = Callable[[str], Secret]
_LEAST_PAUSE_S = 0.05
_REACH_S = 2.0


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
        is_fresh, refused = False, None
        until = time.monotonic() + self._connection.most_wait_s
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
            wait_s = pause_s(answer.headers)
            if not _is_too_early(call, answer) or time.monotonic() + wait_s > until:
                return answer
            refused = answer
            time.sleep(wait_s)

    def is_reachable(self) -> bool:
        """Return whether the service accepts a connection within seconds."""
        host, port = self._connection.place
        with contextlib.suppress(InputError, HostError, OSError):
            for address in self._addresses(host, port):
                with contextlib.suppress(OSError), socket.create_connection((address, port), _REACH_S):
                    return True
        return False

    def require_key_for(self, call: Call) -> None:
        """Raise InputError if the key of the connection may not go where a call would."""
        host, port = self._connection.place
        self._with_key(Outgoing(call.method, host, port, self._connection.prefix + call.target, (), b""))

    def _send_once(self, call: Call, guard: Mapping[str, str], before_sending: Callable[[], None]) -> Answer:
        connection = self._connection
        host, port = connection.place
        target = connection.prefix + call.target
        headers = {**call.headers, **guard}
        headers |= {"Content-Type": call.content_type} if call.body is not None else {}
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
        bare = Outgoing(call.method, host, port, target, raw, encoded(call.body, call.content_type))
        plain_path(target)
        require_no_override(bare)
        whole, replacer = self._with_key(bare)
        told = f"{connection.base_url}: {call.method} {target.partition('?')[0][:200]}"
        until, why = time.monotonic() + connection.timeout_s, "there is no address"
        for address in self._addresses(host, port):
            try:
                received = self._exchange(whole, address, until, before_sending)
            except NoAnswer as error:
                if error.is_sent:
                    raise Lost(f"{told}: {error}") from None
                why = str(error)
            else:
                return self._answer(call, received, replacer, told)
        raise NotSent(f"{told}: {why}; nothing was sent")

    def _exchange(self, request: Outgoing, address: str, until: float, before_sending: Callable[[], None]) -> Received:
        scheme = "https" if self._connection.is_tls else "http"
        return exchange(
            request.method,
            f"{scheme}://{request.host}:{request.port}{request.target}",
            request.headers,
            request.body,
            verify=self._context(),
            within_s=max(until - time.monotonic(), 0.001),
            most_bytes=self._connection.most_response_bytes,
            address=address,
            before_sending=before_sending,
        )

    def _answer(self, call: Call, received: Received, replacer: Replacer, told: str) -> Answer:
        """Return what was received, without the key; raise Lost if it may not be whole."""
        kept: dict[str, str] = {}
        for name, value in received.headers:
            if name in self._kept_headers:  # what is given several times is one list (RFC 9110, 5.3)
                before = [kept[name]] if name in kept else []
                kept[name] = ", ".join([*before, replacer.whole(value).decode("latin-1")])
        body = decoded(replacer.whole(received.body), kept.get("content-type", ""), call.form)
        is_whole = received.is_ended or (call.form == "json" and isinstance(body, (dict, list)))
        if (call.form and not is_whole) or (received.status == 206 and (call.form or call.method == "GET")):
            why = "is a part (206)" if received.status == 206 else "does not say where it ends"
            raise Lost(f"{told}: the answer {why}, so it is unknown whether it is whole")
        return Answer(received.status, kept, body)

    def _addresses(self, host: str, port: int) -> list[str]:
        what = f"requests to {self._connection.base_url}"
        found = addresses_of(host, port, allows_private=self._connection.allows_private, what=what)
        if self._connection.is_tls:
            return found
        if private := [each for each in found if not is_public(each)]:
            return private
        raise InputError(f"host {host}: is not on a private network, so {what} must be https")

    def _with_key(self, request: Outgoing) -> tuple[Outgoing, Replacer]:
        """The request with the real key at its place, and what takes it out of whatever comes back."""
        connection = self._connection
        if not connection.secret:
            return request, Replacer({})
        secret = self._key_of(connection.secret)
        if connection.allows_private and not secret.allows_private:
            raise InputError(
                f"service {secret.service}: its key may not go to private networks. Fix: allows_private of the secret"
            )
        # without a port, the hosts of a secret are at that of the connection's scheme
        port = 443 if request.port == 80 and not connection.is_tls else request.port
        secret_for(replace(request, port=port), [secret])
        headers, target, shown_as = list(request.headers), request.target, {secret.value: KEY}
        if secret.place == "query":
            target += f"{'&' if '?' in target else '?'}{quote(secret.name)}={quote(secret.value, safe='')}"
        elif secret.place == "basic":
            credentials = f"{connection.user}:{secret.value}"
            headers.append((secret.name.encode(), b"Basic " + base64.b64encode(credentials.encode())))
            shown_as[credentials] = f"{connection.user}:{KEY}"  # servers echo the credentials as well as the key
        else:
            word = f"{connection.scheme} " if connection.scheme else ""
            headers.append((secret.name.encode(), f"{word}{secret.value}".encode()))
        return replace(request, target=target, headers=headers), Replacer(shown_as)

    def _context(self) -> ssl.SSLContext:
        if self._verify is None:  # without TLS one that trusts nobody: to read the system's takes longer than a request
            is_tls = self._connection.is_tls
            self._verify = ssl.create_default_context() if is_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self._verify


def _is_too_early(call: Call, answer: Answer) -> bool:
    """Return whether a call was refused for haste. By 503 something else may say so, behind which a change was done."""
    is_busy = answer.status == 503 and "retry-after" in answer.headers
    return answer.status == 429 or (is_busy and call.method in ("GET", "HEAD"))


def pause_s(headers: Mapping[str, str]) -> float:
    """Return how long, in seconds, a service asks to be left alone: a number or a date (RFC 9110, 10.2.3).

    Never less than it takes not to press it; a second where it says nothing, or nothing that can be read.
    """
    given = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", given):
        return max(float(given), _LEAST_PAUSE_S)
    try:
        return max(parsedate_to_datetime(given).timestamp() - time.time(), _LEAST_PAUSE_S)
    except (ValueError, TypeError, OverflowError):
        return 1.0


def complaint(answer: Answer) -> str:
    """Return what a service answered, in words, with the fix for what is usual."""
    fixes = {
        401: ". Fix: its key is not valid (any more); put a new one into the vault and try again",
        403: ". Fix: its key is not for this; get one that is",
        412: ": somebody else has changed it meanwhile",
        429: f": too many requests; try again in {pause_s(answer.headers):.0f} s",
    }
    told = shown(answer.body, 200) if answer.body not in (None, "") else ""
    return f"answered {answer.status}" + (f" {told}" if told else "") + fixes.get(answer.status, "")
