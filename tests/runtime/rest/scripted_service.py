"""A real HTTP service on this machine that keeps items, and answers as a test says, byte by byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

from tests.runtime.rest.raw_service import AnsweringService, answer

Script = Callable[[str, str, bytes], bytes]


def told(body: Any, *lines: str, status: int = 200) -> bytes:
    """A whole answer with JSON in it."""
    return answer(json.dumps(body).encode(), "application/json", *lines, status=status)


class ScriptedService(AnsweringService):
    """Answers method, path and body by `script`; an empty answer ends the connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[str, str]] = []
        super().__init__()

    def changes(self) -> list[str]:
        """The methods of what was asked, but read-backs."""
        return [method for method, _ in self.asked if method != "GET"]

    def answer_on(self, link: socket.socket, method: str, path: str, body: bytes) -> None:
        self.asked.append((method, path))
        link.sendall(self.script(method, path, body))


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
