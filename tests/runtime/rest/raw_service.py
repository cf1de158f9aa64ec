"""A real HTTP service on this machine that keeps bytes as they come, and whose answers a test writes byte by byte."""

from __future__ import annotations

import abc
import contextlib
import socket
import threading
from collections.abc import Callable

from autoclave.core.closing import Closing


def answer(body: bytes, content_type: str = "application/json", *lines: str, status: int = 200) -> bytes:
    """A whole answer."""
    head = [f"HTTP/1.1 {status} So", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class AnsweringService(Closing, abc.ABC):
    """Takes one request of each connection, on a thread of its own."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = int(self._door.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._accepting.join(5)
        self._door.close()

    @abc.abstractmethod
    def answer_on(self, link: socket.socket, method: str, path: str, body: bytes) -> None:
        """Answer a request, or do not."""

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, link.makefile("rb") as coming, contextlib.suppress(OSError):
            words = coming.readline().decode().split()
            if len(words) < 2:
                return
            headers = dict(line.decode().lower().split(":", 1) for line in iter(coming.readline, b"\r\n"))
            self.answer_on(link, words[0], words[1], coming.read(int(headers.get("content-length", "0"))))


class RawService(AnsweringService):
    """Keeps what is put at a path. `shows` writes the answer to a GET out of what is kept there.

    `link` of `takes_over`, if that is set, is a connection whose request was read; it answers in place of all else.
    """

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, bytes]] = []
        self.shows: Callable[[bytes], bytes] = answer
        self.takes_over: Callable[[socket.socket], None] | None = None
        super().__init__()

    def answer_on(self, link: socket.socket, method: str, path: str, body: bytes) -> None:
        self.asked.append((method, path, body))
        if self.takes_over:
            self.takes_over(link)
            return
        if method == "PUT":
            self.kept[path] = body
        elif path not in self.kept:
            link.sendall(answer(b"{}", status=404))
            return
        shown = self.shows(self.kept[path]) if method == "GET" else answer(b"{}")
        if method == "DELETE":
            del self.kept[path]
        link.sendall(shown)
