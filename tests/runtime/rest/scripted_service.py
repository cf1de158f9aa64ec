"""A real HTTP service on this machine whose answers a test writes, byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from autoclave.core.closing import Closing

Headers = dict[str, str]
Given = bytes | Callable[[socket.socket], None]
"""An answer, or what writes to the connection itself."""
Script = Callable[[str, str, bytes], Given]


def answer(body: bytes, content_type: str = "application/json", *lines: str, status: int = 200) -> bytes:
    """A whole answer."""
    head = [f"HTTP/1.1 {status} So", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def told(body: Any, *lines: str, status: int = 200) -> bytes:
    """A whole answer with JSON in it."""
    return answer(json.dumps(body).encode(), "application/json", *lines, status=status)


class ScriptedService(Closing):
    """Takes one request of each connection, on a thread of its own, and answers it by `script`; no bytes end the
    connection.
    """

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script, self._tls = script, tls
        self.asked: list[tuple[str, str, bytes]] = []
        self._door = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = int(self._door.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._accepting.join(5)
        self._door.close()

    def changes(self) -> list[str]:
        """The methods of what was asked, but read-backs."""
        return [method for method, _, _ in self.asked if method != "GET"]

    def respond(self, method: str, path: str, body: bytes, headers: Headers) -> Given:
        self.asked.append((method, path, body))
        return self.script(method, path, body)

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError):
            link = self._tls.wrap_socket(link, server_side=True) if self._tls else link
            with link, link.makefile("rb") as coming:
                words = coming.readline().decode().split()
                if len(words) < 2:
                    return
                lines = [line.decode().strip().partition(":") for line in iter(coming.readline, b"\r\n")]
                headers = {name.lower(): value.strip() for name, _, value in lines}
                body = coming.read(int(headers.get("content-length", "0")))
                given = self.respond(words[0], words[1], body, headers)
                given(link) if callable(given) else link.sendall(given)


class RawService(ScriptedService):
    """Keeps what is put at a path. `shows` writes the answer to a GET out of what is kept there."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.shows: Callable[[bytes], bytes] = answer
        super().__init__(self._keep)

    def _keep(self, method: str, path: str, body: bytes) -> bytes:
        if method == "PUT":
            self.kept[path] = body
        elif path not in self.kept:
            return answer(b"{}", status=404)
        shown = self.shows(self.kept[path]) if method == "GET" else answer(b"{}")
        if method == "DELETE":
            del self.kept[path]
        return shown


class Items:
    """What is kept at `/items/NAME`. `tag` gives the entity tag of all of it; what is `later` waits in `waiting`."""

    def __init__(self, **items: Any) -> None:
        self.items: dict[str, Any] = dict(items)
        self.waiting: list[Callable[[], object]] = []
        self.is_later = False
        self.is_lost = False
        self.tag = ""

    def __call__(self, method: str, path: str, body: bytes) -> bytes:
        name = path.removeprefix("/items/")
        lines = [f"ETag: {self.tag}"] if self.tag else []
        if method == "GET":
            return told(self.items[name], *lines) if name in self.items else told({}, status=404)

        def change() -> None:
            if method == "PUT":
                self.items[name] = json.loads(body)
            else:
                self.items.pop(name, None)

        if self.is_later:
            self.waiting.append(change)
            return told({}, status=202)
        change()
        if self.is_lost:
            self.is_lost = False
            return b""
        return told({}, *lines)

    def go_on(self) -> None:
        """Do what waits."""
        while self.waiting:
            self.waiting.pop(0)()
