"""An application on a port, until a signal ends it: first by draining, then by closing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from types import FrameType

import uvicorn
import uvloop
from fastapi import FastAPI

from autoclave.core import HostError
from autoclave.service.parts import Parts

_CLOSING_S = 5


class DrainingServer(uvicorn.Server):
    """Ends in two steps. A signal stops new work, while clients can still get what is being judged; when that is done,
    or after `drain_s`, streams end and connections are closed. A second signal ends it at once.
    """

    def __init__(self, app: FastAPI, parts: Parts) -> None:
        config = parts.config
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                http="httptools",
                ws="none",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_CLOSING_S,
                timeout_keep_alive=75,
                ssl_certfile=config.tls.certificate_file or None,
                ssl_keyfile=config.tls.key_file or None,
                lifespan="on",
            )
        )
        self._parts = parts
        self._drain: threading.Thread | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain is not None:
            self.should_exit = self.force_exit = True
            return
        self.drain()

    def drain(self) -> None:
        """Begin to end, and return at once."""
        self._drain = threading.Thread(target=self._end, name="drain", daemon=True)
        self._drain.start()

    def _end(self) -> None:
        until = time.monotonic() + self._parts.config.drain_s
        self._parts.dispatcher.drain(self._parts.config.drain_s)
        while self._parts.turns.num_inside and time.monotonic() < until:  # free-form runs and traces
            time.sleep(0.05)
        self._parts.is_stopping.set()
        self._parts.notices.wake_all()
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything that takes long is started.

    Raises:
        HostError: the address is not of this machine, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise HostError(f"host = {host}: {error.strerror}. Fix: give an address of this machine") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise HostError(f"{host}:{port}: cannot listen there ({error.strerror}). Fix: give another port") from None
    return listening


def serve(app: FastAPI, parts: Parts, listening: socket.socket) -> None:
    """Serve until a signal ends it."""
    # This loop leaves more of the cores to the judge than that of the standard library.
    with contextlib.closing(listening), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(DrainingServer(app, parts).serve([listening]))
