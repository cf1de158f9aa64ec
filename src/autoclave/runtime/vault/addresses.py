"""The address that a request goes to: looked up once, checked, and then connected to, whatever the name means later."""

from __future__ import annotations

import ipaddress
import socket

from autoclave.core import InputError


def addresses_of(host: str, port: int, *, allows_private: bool, what: str) -> list[str]:
    """The addresses of a host that `what` may go to, the preferred first; of a private network only if that is allowed.

    Raises:
        InputError: it has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"host {host}: cannot be found ({error.strerror})") from None
    addresses = dict.fromkeys(str(each[4][0]) for each in found)
    allowed = [each for each in addresses if allows_private or ipaddress.ip_address(each).is_global]
    if not allowed:
        raise InputError(f"host {host}: is on a private network, where {what} may not go")
    return allowed
