"""Serve an application on a port until a signal drains and then closes it."""

from __future__ import annotations

import asyncio
import contextlib
import os
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
    """Shuts down in two steps: a signal stops new jobs, while clients still get the verdicts of running ones; then, or
    after `drain_s`, streams end and connections are closed. A second signal ends the server at once.
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
        parts.node.on_end = self.drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drain is not None:
            self.should_exit = self.force_exit = True
            return
        self.drain()

    def drain(self) -> None:
        """Start to shut down, and return at once."""
        if self._drain is not None:
            return
        self._drain = threading.Thread(target=self._end, name="drain", daemon=True)
        self._drain.start()

    def _end(self) -> None:
        until = time.monotonic() + self._parts.config.drain_s
        self._parts.dispatcher.drain(self._parts.config.drain_s)
        while self._parts.run_queue.num_admitted and time.monotonic() < until:  # runs and traces
            time.sleep(0.05)
        self._parts.is_stopping.set()
        self._parts.notices.wake_all()
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, before slower parts start.

    Raises:
        HostError: the address does not belong to this machine, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=1024, dualstack_ipv6=family == socket.AF_INET6)
    except socket.gaierror as error:
        raise HostError(f"host = {host}: {error.strerror}. Fix: use an address of this machine") from None
    except OSError as error:
        raise HostError(
            f"{host}:{port}: cannot listen ({os.strerror(error.errno or 0)}). Fix: use another port"
        ) from None


def serve(app: FastAPI, parts: Parts, listening: socket.socket) -> None:
    # uvloop leaves more CPU time to the judge than the loop of the standard library.
    with contextlib.closing(listening), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(DrainingServer(app, parts).serve([listening]))
