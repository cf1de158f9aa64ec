"""The server of the review page, on the loopback interface, until a signal."""

import contextlib
import secrets
import socket
from collections.abc import Callable

import uvicorn

from autoclave.core import HostError
from autoclave.review.app import Place, create_app

_CLOSING_S = 10


class ReviewServer(uvicorn.Server):
    """A server of one start: its token is new, and its URL has it. Raises HostError where the port is taken."""

    def __init__(self, place: Place, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(32)
        try:
            self.socket = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise HostError(f"port {port}: cannot be used ({error.strerror}). Fix: give another --port") from None
        config = uvicorn.Config(
            create_app(place, self.token),
            log_config=None,
            http="httptools",
            ws="none",
            access_log=False,  # it would have the token
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=_CLOSING_S,
        )
        super().__init__(config)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/{self.token}/"

    def serve_until_signal(self, ready: Callable[[str], None]) -> None:
        """Serve until SIGINT or SIGTERM; call `ready` with the URL first: from then on connections are accepted."""
        with self.socket, contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again at the end
            ready(self.url)
            self.run([self.socket])
