"""Ports of this machine that are a test's own while nobody listens on them."""

from __future__ import annotations

import socket


def reserved_port() -> socket.socket:
    """A socket that holds a free port and does not listen: connections are refused, and no other test is given it.

    Who asks for this very port can listen there all the same, if it reuses addresses, as servers do. To be closed.
    """
    seat = socket.socket()
    seat.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    seat.bind(("127.0.0.1", 0))
    return seat
