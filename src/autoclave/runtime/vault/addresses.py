"""Which address of a host is connected to: never one of a private network, unless a secret is for that."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

from autoclave.core import InputError

_LAST_BITS = tuple(
    ipaddress.IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
"""Networks whose addresses end with one of IPv4: compatible, mapped, translated, and of gateways (NAT64)."""
_LOCAL_GATEWAYS = ipaddress.IPv6Network("64:ff9b:1::/48")


def addresses_of(host: str, port: int, *, allows_private: bool, what: str) -> list[str]:
    """The addresses of a host that `what` may go to, the preferred first: what is connected to, whatever the name means
    later. Those of a private network only if that is allowed.

    Raises InputError where it has none.
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
    """Whether an address is one of the Internet, as is the address of IPv4 that may be in it."""
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
