"""Which requests of a cell may leave, and what is put into them. Pure.

A request may go where one of the secrets of the action may: to its hosts, by its methods, to its paths. The dummy of
that secret is replaced by the real value at its place. A dummy anywhere else raises the alarm, and nothing is sent.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode

from autoclave.core import InputError
from autoclave.runtime.policy.globs import matcher
from autoclave.runtime.vault.dummies import found_in
from autoclave.runtime.vault.secret import Secret

_HOST = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_OURS = frozenset({b"host", b"content-length", b"accept-encoding", b"expect"})
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


def host_and_port(authority: str, default: int = 443) -> tuple[str, int]:
    """Host and port out of `host:port`, in the one spelling that rules have.

    Raises:
        InputError: it is no plain name: an address, a user before it, another alphabet, a dot at the end.
    """
    host, colon, port = authority.lower().partition(":")
    if not _HOST.fullmatch(host) or re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]*", host):
        raise InputError(f"host {authority[:100]!r}: must be a plain name")
    if colon and not re.fullmatch(r"[0-9]{1,5}", port):
        raise InputError(f"host {authority[:100]!r}: the port is no number")
    return host, int(port) if colon else default


def secret_for(request: Outgoing, secrets: Sequence[Secret]) -> Secret:
    """The secret whose service a request goes to.

    Raises:
        InputError: it goes to none of them, or not as it may.
    """
    path = plain_path(request.target)
    at_host = [secret for secret in secrets if any(_is_host(request, host) for host in secret.hosts)]
    if not at_host:
        raise InputError(f"{request.host}:{request.port} is no host of a service of this action")
    for secret in at_host:
        if request.method in secret.methods and matcher(secret.paths).fullmatch(path):
            return secret
    raise InputError(f"{request.method} {path[:200]} at {request.host} is not for this action")


def injected(request: Outgoing, secret: Secret, dummies: Mapping[str, str]) -> Outgoing:
    """The request with the real value in place of the dummy; `dummies` are those of all services by their names.

    Raises:
        Alarm: a dummy is where it does not belong.
    """
    dummy = dummies[secret.service]
    headers: list[tuple[bytes, bytes]] = []
    remaining: list[bytes] = [request.method.encode(), request.body]
    for name, value in request.headers:
        if name.lower() in _HOP_BY_HOP or name.lower() in _OURS:
            remaining.append(value)
            continue
        new = _in_header(name, value, secret, dummy)
        headers.append((name, new if new is not None else value))
        remaining += [name] if new is not None else [name, value]
    target = request.target
    if secret.place == "query":
        path, _, query = target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        if (secret.name, dummy) in pairs:
            others = [pair for pair in pairs if pair != (secret.name, dummy)]
            remaining.append(urlencode(others).encode())
            target = f"{path}?{urlencode([*others, (secret.name, secret.value)])}"
            remaining.append(path.encode())
        else:
            remaining.append(target.encode())
    else:
        remaining += [target.encode(), unquote(target).encode("utf-8", "surrogateescape")]
    if seen := found_in(b"\n".join(remaining), dummies):
        raise Alarm(f"the dummy of {seen[0]} where it does not belong, on the way to {request.host}")
    return Outgoing(request.method, request.host, request.port, target, headers, request.body)


def _in_header(name: bytes, value: bytes, secret: Secret, dummy: str) -> bytes | None:
    """The value of a header with the real secret in it; None if it is not the secret's place."""
    if secret.place == "query" or name.lower() != secret.name.lower().encode():
        return None
    if secret.place == "header":
        before, found, after = value.partition(dummy.encode())
        is_own = found and re.fullmatch(rb"([A-Za-z]+ )?", before) and not after
        return before + secret.value.encode() if is_own else None
    kind, _, encoded = value.partition(b" ")
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        return None
    if kind.lower() != b"basic" or not colon or password != dummy.encode():
        return None
    return kind + b" " + base64.b64encode(user + b":" + secret.value.encode())


def _is_host(request: Outgoing, pattern: str) -> bool:
    host, port = pattern.removeprefix("*."), 443
    if ":" in host:
        host, _, text = host.partition(":")
        port = int(text)
    if request.port != port:
        return False
    return request.host.endswith(f".{host}") if pattern.startswith("*.") else request.host == host


def plain_path(target: str) -> str:
    """The path of a target, if there is only one way to read it.

    Raises:
        InputError: there are several.
    """
    path = target.partition("?")[0]
    decoded = unquote(path, errors="strict") if path.isascii() else ""
    parts = decoded.split("/")
    if not decoded.startswith("/") or any(part in (".", "..") for part in parts) or "\\" in decoded or "\0" in decoded:
        raise InputError(f"path {path[:200]!r}: must be absolute, plain, and without . and ..")
    if (
        "%2f" in path.lower()
        or "//" in decoded
        or "%" in decoded
        or decoded != posixpath.normpath(decoded).rstrip("/") + ("/" if decoded.endswith("/") else "")
    ):
        raise InputError(f"path {path[:200]!r}: can be read in several ways")
    return quote(decoded)
