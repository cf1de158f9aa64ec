"""Judgement of the requests of a cell, and insertion of keys into them. Pure.

A request may go where one of the secrets of the action may: to its hosts, by its methods, to its paths. The dummy of
that secret is replaced by the real value at its place. A dummy anywhere else raises an alarm, whatever else is wrong
with the request, and nothing is sent.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast
from urllib.parse import parse_qsl, quote

from autoclave.core import InputError
from autoclave.core.json import foreign_json
from autoclave.runtime.policy.globs import matcher
from autoclave.runtime.vault.compressed import Unexpandable, contents
from autoclave.runtime.vault.secret import Secret
from autoclave.runtime.vault.targets import path_of, with_parameter
from autoclave.runtime.vault.traces import found_in

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_OURS = frozenset({b"host", b"content-length", b"accept-encoding", b"expect", b"range", b"if-range"})
"""Headers that are not passed on. A key split over partial responses could not be recognised."""
_OVERRIDES = frozenset({"x-http-method-override", "x-http-method", "x-method-override", "x-original-method",
    "x-forwarded-method", "x-original-url", "x-original-uri", "x-rewrite-url", "x-forwarded-uri", "x-forwarded-path",
    "x-forwarded-prefix"})  # fmt: skip
"""Headers that make servers treat a request as another one than its first line says."""
_METHOD_PARAMETER = re.compile(r"[ ._]method(\[.*)?", re.IGNORECASE | re.DOTALL)
"""A parameter that overrides the method in some frameworks, in the spellings that they read as `_method`."""
_METHOD_FIELD = re.compile(rb"""(?i)\bname\*?\s*=[^;\r\n]{0,60}?[ ._]method(?![\w.-])""")
_JSON = re.compile(rb"application/(?:[^;\s]+\+)?json")
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_INVALID_TOKEN = re.compile(r"""[\s,]error\s*=\s*("invalid_token"|invalid_token(?=[\s,]|$))""")
Headers = Sequence[tuple[bytes, bytes]]


class Alarm(InputError):
    """A dummy was seen where it does not belong."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request of a cell: `target` is path and query, `port` that of TLS."""

    method: str
    host: str
    port: int
    target: str
    headers: Headers
    body: bytes

    @property
    def place(self) -> str:
        """The host, with the port if that is not the one of https."""
        return self.host if self.port == 443 else f"{self.host}:{self.port}"


def host_and_port(authority: str, default: int = 443) -> tuple[str, int]:
    """Return host and port from `host:port`, in the spelling of rules.

    Raises InputError where it is not a plain name: an address other than 127.0.0.1, a user before it, another alphabet,
    a dot at the end.
    """
    host, colon, port = authority.lower().partition(":")
    is_address = re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]*", host) and host != "127.0.0.1"
    if is_address or not _HOST.fullmatch(host):
        raise InputError(f"host {authority[:100]!r}: must be a name or 127.0.0.1")
    if colon and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 1 << 16):
        raise InputError(f"host {authority[:100]!r}: the port must be from 1 to 65535")
    return host, int(port) if colon else default


def judged(request: Outgoing, secrets: Sequence[Secret], dummies: Mapping[str, str]) -> Secret:
    """Return the secret whose service a request goes to; `dummies` are those of all services by their names.

    Raises Alarm where a dummy is where it does not belong, and InputError where the request goes to none of them, or
    not as it may.
    """
    at_host = [secret for secret in secrets if is_at(request.host, request.port, secret)]
    blank = _filled(request, at_host, dummies, dict.fromkeys(dummies, ""))
    refuse_dummies(words_of(blank), dummies, request.host)
    _require_own_host(request)
    require_no_override(request)
    return secret_for(request, secrets)


def injected(request: Outgoing, secret: Secret, dummies: Mapping[str, str]) -> Outgoing:
    """Return the request with the real value for the dummy; raise Alarm if one of `dummies` is elsewhere."""
    blank = _filled(request, [secret], dummies, {secret.service: ""})
    refuse_dummies(words_of(blank), dummies, request.host)
    whole = _filled(request, [secret], dummies, {secret.service: secret.value})
    return replace(whole, headers=[(name, value) for name, value in whole.headers if is_passed_on(name)])


def secret_for(request: Outgoing, secrets: Sequence[Secret]) -> Secret:
    """Return the secret whose service a request goes to. Raises InputError where it may go to none of them."""
    path = path_of(request.target)
    at_host = [secret for secret in secrets if is_at(request.host, request.port, secret)]
    if not at_host:
        raise InputError(f"{request.host}:{request.port} is no host of a service of this action")
    for secret in at_host:
        if request.method in secret.methods and matcher(secret.paths).fullmatch(path):
            return secret
    raise InputError(f"{request.method} {path[:200]} at {request.host} is not for this action")


def is_at(host: str, port: int, secret: Secret) -> bool:
    return any(_is_host(host, port, pattern) for pattern in secret.hosts)


def refuse_dummies(content: bytes, dummies: Mapping[str, str], host: str) -> None:
    """Raise Alarm if there is a dummy in bytes that may contain none."""
    if seen := found_in(content, dummies):
        raise Alarm(f"the dummy of {seen[0]} where it does not belong, on the way to {host[:200]}")


def is_passed_on(name: bytes) -> bool:
    """Return whether a header of a cell may reach a service."""
    plain = name.decode("ascii", "replace").lower().replace("_", "-")
    return name.lower() not in HOP_BY_HOP | _OURS and plain not in _OVERRIDES


def _require_own_host(request: Outgoing) -> None:
    named = [value.decode("ascii", "replace") for name, value in request.headers if name.lower() == b"host"]
    if len(named) != 1 or host_and_port(named[0], 443) != (request.host, request.port):
        names = ", ".join(named)[:100]
        raise InputError(f"the request names {names!r}, the tunnel is to {request.host}:{request.port}")


def require_no_override(request: Outgoing) -> None:
    """Raise InputError if a header or parameter overrides the method or path of a request."""
    for name, _ in request.headers:
        if name.decode("ascii", "replace").lower().replace("_", "-") in _OVERRIDES:
            raise InputError(
                f"header {name.decode('ascii', 'replace')}: makes the service do something other than requested"
            )
    names = _parameters(request.target.partition("?")[2].encode())
    for kind in _content_types(request):
        if kind == b"application/x-www-form-urlencoded":
            names += _parameters(request.body)
        elif kind == b"multipart/form-data" and _METHOD_FIELD.search(request.body):
            names.append("_method")
        elif _JSON.fullmatch(kind):
            names += _names_in_json(request.body)
    if any(_METHOD_PARAMETER.fullmatch(name.strip()) for name in names):
        raise InputError("parameter _method: makes the service do something other than requested")


def _parameters(encoded: bytes) -> list[str]:
    """Return the names in a form, separated by `&`, and for some servers by `;`."""
    pairs = parse_qsl(encoded.decode("latin-1").replace(";", "&"), keep_blank_values=True, encoding="latin-1")
    return [name for name, _ in pairs]


def _names_in_json(body: bytes) -> list[str]:
    if b"method" not in body and b"\\u" not in body and b"\0" not in body:
        return []
    try:
        given = foreign_json(body)
    except ValueError:
        return ["_method"]  # a server may parse it all the same
    return list(cast("Mapping[str, object]", given)) if isinstance(given, Mapping) else []


def _content_types(request: Outgoing) -> set[bytes]:
    """Return all content types: of several, servers take the first or the last."""
    given = [value for name, value in request.headers if name.lower() == b"content-type"]
    return {each.partition(b";")[0].strip().lower() for value in given for each in value.split(b",")}


def _filled(
    request: Outgoing, secrets: Sequence[Secret], dummies: Mapping[str, str], values: Mapping[str, str]
) -> Outgoing:
    """Return the request with `values` of secrets, by service, in place of their dummies where these belong."""
    headers, target = list(request.headers), request.target
    for secret in secrets:
        dummy, given = dummies[secret.service], values[secret.service]
        if secret.place == "query":
            target = with_parameter(target, secret.name, dummy, quote(given, safe="")) or target
        else:
            headers = [(name, _in_header(name, value, secret, dummy, given)) for name, value in headers]
    return replace(request, target=target, headers=headers)


def words_of(request: Outgoing) -> bytes:
    """Return all bytes of a request, and the compressed contents of its body."""
    words = [request.method.encode(), request.target.encode(), request.body]
    with contextlib.suppress(Unexpandable):  # a hidden dummy is useless to a service
        words += contents(request.body)
    return b"\n".join([*words, *(word for pair in request.headers for word in pair)])


def may_send_again(method: str, challenge: str) -> bool:
    """Return whether a request that was answered with 401 may be sent once more, with another token.

    By RFC 9110 such a request has not been applied. That is relied on for idempotent methods, and else only if the
    `challenge` (WWW-Authenticate) names the token as the reason (RFC 6750): a service that needs a token midway through
    a request responds with 401 as well.
    """
    if method.upper() in _IDEMPOTENT:
        return True
    return bool(re.match(r"\s*bearer\s", challenge, re.IGNORECASE) and _INVALID_TOKEN.search(challenge))


def _in_header(name: bytes, value: bytes, secret: Secret, dummy: str, given: str) -> bytes:
    """Return the value of a header with `given` in place of the dummy, if it is the secret's place."""
    if name.lower() != secret.name.lower().encode():
        return value
    if secret.place == "header":
        before, found, after = value.partition(dummy.encode())
        is_own = found and re.fullmatch(rb"([A-Za-z]+ )?", before) and not after
        return before + given.encode() if is_own else value
    kind, _, encoded = value.partition(b" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        return value
    if kind.lower() != b"basic" or not colon or password != dummy.encode():
        return value
    return kind + b" " + base64.b64encode(user + b":" + given.encode())


def _is_host(given: str, at: int, pattern: str) -> bool:
    host, _, port = pattern.removeprefix("*.").partition(":")
    return at == int(port or 443) and (given.endswith(f".{host}") if pattern.startswith("*.") else given == host)
