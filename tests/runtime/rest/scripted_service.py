"""A real HTTP service on this machine that keeps items, and answers as a test says, byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from autoclave.core.closing import Closing
from tests.runtime.rest.raw_service import answer

Script = Callable[[str, str, bytes], bytes]


def told(body: Any, *lines: str, status: int = 200) -> bytes:
    """A whole answer with JSON in it."""
    return answer(json.dumps(body).encode(), "application/json", *lines, status=status)


class ScriptedService(Closing):
    """Answers method, path and body by `script`; an empty answer ends the connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[str, str]] = []
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
        """The methods of what was asked, but looks."""
        return [method for method, _ in self.asked if method != "GET"]

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
            body = coming.read(int(headers.get("content-length", "0")))
            self.asked.append((words[0], words[1]))
            link.sendall(self.script(words[0], words[1], body))


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
