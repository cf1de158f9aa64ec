"""Serve an application on a port until a signal drains and then closes it."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from functools import partial
from types import FrameType
from typing import cast

import uvicorn
import uvloop
from fastapi import FastAPI

from autoclave.core import HostError
from autoclave.service.connections import IDLE_S, Connection, Edge
from autoclave.service.parts import Parts

_BACKLOG = 4096
_CLOSING_S = 5
_TICKS_OF_A_SECOND = 10


class DrainingServer(uvicorn.Server):
    """Shuts down in two steps: a signal stops new jobs, while clients still get the verdicts of running ones; then, or
    after `drain_s`, streams end and connections are closed. A second signal ends the server at once.
    """

    def __init__(self, app: FastAPI, parts: Parts) -> None:
        tls = parts.config.tls
        config = uvicorn.Config(
            app,
            log_config=None,
            http="httptools",
            ws="none",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_CLOSING_S,
            timeout_keep_alive=IDLE_S,
            ssl_certfile=tls.certificate_file or None,
            ssl_keyfile=tls.key_file or None,
            lifespan="on",
            backlog=_BACKLOG,
        )
        config.load()
        self._edge = Edge(parts.config.admission, config.ssl)
        config.ssl = None  # `Connection` does TLS, so that handshakes count too
        config.http_protocol_class = cast(type[asyncio.Protocol], partial(Connection, self._edge))
        super().__init__(config)
        self._parts = parts
        self._drain: threading.Thread | None = None
        parts.node.on_end = self.drain

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_OF_A_SECOND == 0:
            self._edge.close_overdue(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

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
        self._parts.notices.wake()
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, before slower parts start. Raises `HostError` if the address cannot be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6)
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
