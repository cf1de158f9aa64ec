"""The address that the browser returns to: a listener on this machine that takes one request (RFC 8252, 7.3).

It listens on 127.0.0.1 alone, answers one path, and only requests that name it as their host, so that a page whose name
was pointed at this machine gets nothing. Who comes with another state than the browser was sent with is refused, and
it is waited on. What it answers is a plain page without anything of the request in it, and nothing of the request is
printed.
"""

import hmac
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

from autoclave.core import HostError, InputError
from autoclave.core.closing import Closing

_ADDRESS, _PATH = "127.0.0.1", "/callback"
_CLOSING_S = 0.02
_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Connection": "close",
}


class Loopback(Closing):
    """Listens for the browser that was sent with `state`, at `port` or a free one. Raises HostError if it is taken."""

    def __init__(self, state: str, port: int = 0) -> None:
        try:
            self._server = _Server((_ADDRESS, port), _Handler)
        except OSError as error:
            why = f"port {port} of {_ADDRESS}: cannot be listened on ({error.strerror})"
            raise HostError(f"{why}. Fix: end what listens there") from None
        self._server.state, self._server.answers = state, queue.Queue(maxsize=1)
        self.port: int = self._server.server_address[1]
        self.redirect_uri = f"http://{_ADDRESS}:{self.port}{_PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_CLOSING_S,), daemon=True)
        self._thread.start()

    def query(self, deadline_s: float) -> str:
        """Return what the browser comes back with, once; raise InputError if it did not come in time."""
        try:
            return self._server.answers.get(timeout=deadline_s)
        except queue.Empty:
            raise InputError(
                f"no browser came back within {deadline_s:.0f} s with the state that was sent; nothing was granted"
            ) from None
        finally:
            self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A connection that says nothing, as browsers open them ahead of time, keeps nobody waiting."""

    daemon_threads, block_on_close = True, False
    state: str
    answers: queue.Queue[str]


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0
    server_version, sys_version = "autoclave", ""
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the line of the request has the code in it."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        states = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "state"]
        if path != _PATH or self.headers.get("Host") != f"{_ADDRESS}:{self.server.server_port}":
            self._say(404, "There is nothing here.")
        elif len(states) != 1 or not hmac.compare_digest(states[0].encode(), self.server.state.encode()):
            self._say(400, "This is not the answer that is waited for.")
        else:
            try:
                self.server.answers.put_nowait(query)
                self._say(200, "Done here. Close this page; autoclave says in the terminal what came of it.")
            except queue.Full:
                self._say(410, "An answer has come already.")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Length": f"{len(text)}"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())
