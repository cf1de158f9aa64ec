"""A folder and a database that agents worked on, and the review page of it on a real server."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from autoclave.review.app import Place
from autoclave.review.server import ReviewServer
from autoclave.runtime.connections import Connections, save_connections
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from tests.runtime.conftest import sealing_host

__all__ = ["sealing_host"]

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def png(color: tuple[int, int, int]) -> bytes:
    """An image of one color."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = zlib.compress((b"\0" + bytes(color) * 8) * 8)
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@dataclass(frozen=True)
class Reviewed:
    """A folder under review: sessions on it, and requests to its page."""

    root: Path
    state: Path
    url: str
    client: httpx.Client

    def session(self, name: str = "main") -> Session:
        return open_session(self.root, self.state, name=name)

    def run(self, *operations: dict[str, Any], name: str = "main", by: str = "model") -> list[str]:
        """Do operations in a session of their own; return their ids."""
        with self.session(name) as session:
            proposals = []
            for operation in operations:
                proposals.append(session.propose(operation, by=by))
                session.run(proposals[-1].action, proposals[-1].plan.digest)
            return [each.action for each in proposals]

    def get(self, path: str) -> Any:
        answer = self.client.get(f"/api/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        answer = self.client.post(f"/api/{path}", content=json.dumps(body), headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def changes(self, action: str) -> list[dict[str, Any]]:
        return self.get(f"actions/{action}")["changes"]

    def lines(self) -> dict[str, dict[str, Any]]:
        return {line["action"]: line for line in self.get("timeline")["actions"]}


@contextlib.contextmanager
def served(root: Path, state: Path, open_it: Callable[[], Session] | None = None) -> Generator[Reviewed]:
    """The page of a folder, on a free port."""
    server = ReviewServer(Place(root, state, open_it or (lambda: open_session(root, state))))
    ready = threading.Event()
    thread = threading.Thread(target=server.serve_until_signal, args=[lambda url: ready.set()])
    thread.start()
    assert ready.wait(20)
    base = server.url.removesuffix(f"/{server.token}/")
    try:
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {server.token}"}, timeout=30) as client:
            yield Reviewed(root, state, server.url, client)
    finally:
        server.should_exit = True
        thread.join()


def prepared(folder: Path) -> tuple[Path, Path]:
    """A folder with files, a database beside it, and grants for everything in them."""
    root, state = folder / "project", folder / "state"
    root.mkdir()
    state.mkdir(mode=0o700)
    (root / "notes.txt").write_text("one\ntwo\nthree\n")
    (root / "logo.png").write_bytes(png((200, 0, 0)))
    shop = folder / "shop.db"
    with contextlib.closing(sqlite3.connect(shop)) as connection:
        connection.executescript(
            "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL, picture BLOB);"
            "INSERT INTO item VALUES (1, 'tea', 2.5, x'00ff'), (2, 'milk', NULL, NULL)"
        )
    save_connections(state, Connections(databases={"shop": DatabaseConnection(engine="sqlite", path=str(shop))}))
    with open_session(root, state) as session:
        everything = ("files/**", "databases/**", "programs/**", "files/.env", "files/**/.env")
        session.permissions.grant(Grant(resources=everything, verbs=("*",)))
    return root, state


@pytest.fixture
def reviewed(tmp_path: Path) -> Iterator[Reviewed]:
    with served(*prepared(tmp_path)) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviewed]:
    """One for all tests of a file, which leave it as it is, with a history of hostile names."""
    with served(*prepared(tmp_path_factory.mktemp("shared"))) as found:
        image = base64.b64encode(png((0, 0, 200))).decode()
        found.run(
            {"do": "write", "path": "notes.txt", "content": "one\n2\nthree\n"},
            {"do": "write", "path": "logo.png", "content_base64": image},
            {
                "do": "sql",
                "database": "shop",
                "statements": ["INSERT INTO item (name) VALUES (?)"],
                "parameters": [[HOSTILE]],
            },
            {"do": "write", "path": HOSTILE.replace("/", "|"), "content": f"{HOSTILE}\n\u202e\x1b[31m\n"},
            name=HOSTILE,
            by=HOSTILE,
        )
        with found.session() as session:
            session.savepoint(HOSTILE)
        yield found
