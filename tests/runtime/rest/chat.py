"""Another client of Synapse, which shares nothing with what is tested."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.runtime.rest.acting import ask
from tests.runtime.rest.servers import synapse_running


@dataclass(frozen=True)
class Chat:
    """An account, and a room of ours."""

    port: int
    token: str = ""
    room: str = ""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + 30
        while (found := self._asked(method, path, body)).get("errcode") == "M_LIMIT_EXCEEDED":
            assert time.monotonic() < deadline
            time.sleep(0.05)  # until its limit has passed
        return found

    def _asked(self, method: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        given = None if body is None else json.dumps(body)
        return json.loads(ask(self.port, method, f"/_matrix/client/v3{path}", given, **headers)[2])

    def new_room(self, name: str) -> Chat:
        """The same client in a room of its own."""
        return replace(self, room=self.ask("POST", "/createRoom", {"name": name})["room_id"])

    def messages(self) -> list[str]:
        """The texts of the room, the first first; empty for one that was redacted."""
        found = self.ask("GET", f"/rooms/{quote(self.room)}/messages?dir=b&limit=200")["chunk"]
        return [each["content"].get("body", "") for each in found[::-1] if each["type"] == "m.room.message"]


@contextlib.contextmanager
def chat_running(folder: Path) -> Generator[Chat]:
    """A Synapse with an account of ours."""
    with synapse_running(folder) as port:
        given = {"username": "us", "password": "long enough 1", "auth": {"type": "m.login.dummy"}}
        yield Chat(port, Chat(port).ask("POST", "/register", given)["access_token"])
