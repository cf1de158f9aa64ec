"""Targets of requests: unambiguous parsing, and the address of the host.

The bytes that were judged here are sent; whatever servers are known to parse in two ways is refused. An address of a
private network is used only where a secret allows it.
"""

import ipaddress
import re
import socket
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, unquote

from autoclave.core import InputError

_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-]|%[0-9A-Fa-f]{2})*")
"""As in RFC 3986, plus brackets: many clients do not escape them, and no rule depends on a query."""
AMBIGUOUS = re.compile(r"[%\\?#;\x00-\x1f\x7f]|//|/\.{1,2}(?:/|\Z)")
"""Parts of a decoded path that might be decoded again, cut off, or resolved on the way."""

_LAST_BITS = tuple(
    ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
"""Networks whose addresses end with an IPv4 address: compatible, mapped, translated, and NAT64."""
_LOCAL_GATEWAYS = ipaddress.IPv6Network("64:ff9b:1::/48")


def path_of(target: str) -> str:
    """Return the decoded path of a target; raise InputError if it is ambiguous or has a forbidden character."""
    path, mark, query = target.partition("?")
    if not _PATH.fullmatch(path):
        raise InputError(f"path {path[:200]!r}: must be absolute and plain, of the characters that RFC 3986 allows")
    if mark and not _QUERY.fullmatch(query):
        raise InputError(f"query of {path[:200]!r}: has characters that RFC 3986 does not allow")
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise InputError(f"path {path[:200]!r}: must be UTF-8") from None
    if "%2f" in path.lower() or AMBIGUOUS.search(decoded):
        raise InputError(f"path {path[:200]!r}: can be read in several ways")
    return decoded


def plain_path(target: str) -> str:
    """Return the path of a target, normalised. Raises InputError as `path_of`."""
    return quote(path_of(target))


def with_parameter(target: str, name: str, old: str, new: str) -> str | None:
    """Return the target with another value for the first such parameter, or None; other bytes stay as they are."""
    path, mark, query = target.partition("?")
    parts = query.split("&")
    for number, part in enumerate(parts):
        if parse_qsl(part, keep_blank_values=True, separator="&") == [(name, old)]:
            parts[number] = f"{part.partition('=')[0]}={new}"
            return f"{path}{mark}{'&'.join(parts)}"
    return None


def addresses_of(host: str, port: int, *, allows_private: bool, what: str) -> list[str]:
    """Return the addresses of a host that `what` may go to, the preferred first; private ones only if allowed.

    To be connected to directly, whatever the name resolves to later. Raises InputError where there is none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"host {host}: cannot be found ({error.strerror})") from None
    addresses = dict.fromkeys(str(each[4][0]) for each in found)
    if allowed := [each for each in addresses if allows_private or is_public(each)]:
        return allowed
    raise InputError(f"host {host}: is on a private network, where {what} may not go")


def is_public(address: str) -> bool:
    """Return whether an address, and any IPv4 address embedded in it, is public."""
    given = ipaddress.ip_address(address)
    inner = list(_inside(given))
    if inner:
        return all(is_public(str(each)) for each in inner)
    is_gateway = given.version == 6 and given in _LOCAL_GATEWAYS
    return given.is_global and not given.is_multicast and not given.is_reserved and not is_gateway


def _inside(given: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    if isinstance(given, ipaddress.IPv6Address):
        if any(given in network for network in _LAST_BITS):
            yield ipaddress.IPv4Address(int(given) & 0xFFFFFFFF)
        elif given.sixtofour:
            yield given.sixtofour
        elif given.teredo:
            yield from given.teredo
