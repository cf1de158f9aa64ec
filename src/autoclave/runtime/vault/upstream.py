"""A request of a cell to a service, and its response: to one address, verified, whole, and never logged.

Redirects are not followed. The body of the response comes in plain: gzip and deflate are undone, and what is labelled
as compressed in another way is refused, since a key in it could not be seen. What is compressed without a label is
expanded and searched: it is passed on as it came if it has no key.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from autoclave.runtime.exchange import NoAnswer, Received, exchange
from autoclave.runtime.vault.compressed import Unexpandable, contents
from autoclave.runtime.vault.injection import Outgoing

_WITHIN_S = 120.0
_MOST_BYTES = 64 << 20


class ServiceFault(Exception):
    """A service cannot be reached, or its response cannot be passed on; the message has nothing of either."""


def asked(request: Outgoing, address: str, verify: ssl.SSLContext, has_secret: Callable[[bytes], bool]) -> Received:
    """Send a request to a host at an address. `has_secret` says whether expanded bytes of the response have a key.

    Raises:
        ServiceFault: there is no response that can be passed on.
    """
    headers = list(request.headers)
    if not any(name.lower() == b"user-agent" for name, _ in request.headers):
        headers.append((b"user-agent", b"autoclave"))
    try:
        response = exchange(
            request.method,
            f"https://{request.place}{request.target}",
            headers,
            request.body,
            verify=verify,
            within_s=_WITHIN_S,
            most_bytes=_MOST_BYTES,
            address=address,
        )
        if any(map(has_secret, contents(response.body))):
            raise ServiceFault("answered with a key in something compressed")
    except NoAnswer as error:
        raise ServiceFault(f"cannot be used: {error}") from None
    except Unexpandable as error:
        raise ServiceFault(f"answered with something compressed: {error}; a key in that could not be seen") from None
    return response
