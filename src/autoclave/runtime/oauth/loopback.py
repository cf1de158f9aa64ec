"""Where the browser comes back to: a listener on this machine that takes one request and is gone (RFC 8252, 7.3).

It listens on 127.0.0.1 alone, answers one path, and only requests that name it as their host, so that a page whose name
was pointed at this machine gets nothing. Who comes with another state than the browser was sent with is refused, and
it is waited on. What it answers is a plain page without anything of the request in it, and nothing of the request is
printed.
"""

from __future__ import annotations

import hmac
import html
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from autoclave.core import HostError, InputError
from autoclave.core.closing import Closing

_ADDRESS, _PATH = "127.0.0.1", "/callback"
_PATIENCE_S = 5.0
_CLOSING_S = 0.02


class Loopback(Closing):
    """Listens for the browser that was sent with `state`, at `port` or at any free one.

    Raises:
        HostError: the port is taken.
    """

    def __init__(self, state: str, port: int = 0) -> None:
        self._answers: queue.Queue[str] = queue.Queue(maxsize=1)
        self._others = threading.Event()
        own = {"answers": self._answers, "others": self._others, "state": state, "place": ""}
        handler = type("Handler", (_Handler,), own)
        try:
            self._server = _Server((_ADDRESS, port), handler)
        except OSError as error:
            raise HostError(
                f"port {port} of {_ADDRESS}: cannot be listened on ({error.strerror}). Fix: end what listens there"
            ) from None
        self.port: int = self._server.server_address[1]
        handler.place = f"{_ADDRESS}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CLOSING_S,), name="loopback", daemon=True
        )
        self._thread.start()

    @property
    def redirect_uri(self) -> str:
        """What the provider has to send the browser to."""
        return f"http://{_ADDRESS}:{self.port}{_PATH}"

    def query(self, deadline_s: float) -> str:
        """What the browser comes back with; nobody is listened to after that.

        Raises:
            InputError: it did not come in time.
        """
        try:
            return self._answers.get(timeout=deadline_s)
        except queue.Empty:
            told = f"no browser came back within {deadline_s:.0f} s; nothing was granted"
            if self._others.is_set():
                told += ". One came with another state than was sent: open no address that somebody else gave you"
            raise InputError(told) from None
        finally:
            self.close()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A connection that says nothing, as browsers open them ahead of time, keeps nobody waiting."""

    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    answers: queue.Queue[str]
    others: threading.Event
    state: str
    place: str
    timeout = _PATIENCE_S
    server_version, sys_version = "autoclave", ""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the line of the request has the code in it."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path != _PATH or self.headers.get("Host") != self.place:
            self._page(404, "There is nothing here.")
            return
        states = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "state"]
        if len(states) != 1 or not hmac.compare_digest(states[0].encode("utf-8", "replace"), self.state.encode()):
            self.others.set()
            self._page(400, "This is not the answer that is waited for.")
            return
        try:
            self.answers.put_nowait(query)
        except queue.Full:
            self._page(410, "An answer has come already.")
            return
        self._page(200, "Done here. Close this page; autoclave says in the terminal what came of it.")

    def _page(self, status: int, text: str) -> None:
        content = f"<!doctype html><title>autoclave</title><p>{html.escape(text)}</p>\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", f"{len(content)}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
