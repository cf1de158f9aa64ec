"""A real MongoDB server, for tests that talk to one."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

DEADLINE_S = 60.0
DBNAME = "shop"
USER, PASSWORD = "agent", "agent-password"
_AS_BYTES = CodecOptions(document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_OWNER = ("owner", "owner-password")


class Mongodb:
    """A replica set of one server, which listens on 127.0.0.1 alone and lets nobody in without a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with contextlib.closing(socket.socket()) as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        (folder / "data").mkdir()
        (folder / "key").write_bytes(base64.b64encode(os.urandom(96)))
        (folder / "key").chmod(0o600)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Have it run, be the primary, and know its users. The first user is made by an exception for this machine."""
        words = ["mongod", "--replSet", "tests", "--bind_ip", "127.0.0.1", "--port", f"{self.port}"]
        words += ["--dbpath", f"{self.folder / 'data'}", "--keyFile", f"{self.folder / 'key'}"]
        words += ["--unixSocketPrefix", f"{self.folder}", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        with self.connected(None) as nobody:
            until = time.monotonic() + DEADLINE_S
            members = {"_id": "tests", "members": [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]}
            self._done(until, lambda: nobody.admin.command("replSetInitiate", members))
            self._done(until, lambda: nobody.admin.command("hello")["isWritablePrimary"] or None)
            owner = {"createUser": _OWNER[0], "pwd": _OWNER[1], "roles": ["root"]}
            self._done(until, lambda: nobody.admin.command(owner))
        with self.connected() as client:
            client[DBNAME].command({"createUser": USER, "pwd": PASSWORD, "roles": ["readWrite"]})

    def _done(self, until: float, step: Any) -> None:
        """Try a step until it is done."""
        while True:
            with contextlib.suppress(PyMongoError):
                if step() is not None:
                    return
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < until, "the server does not come up"
            time.sleep(0.05)

    @contextlib.contextmanager
    def connected(self, who: tuple[str, str] | None = _OWNER) -> Iterator[pymongo.MongoClient[Any]]:
        """A client of its owner, or of nobody."""
        login = {"username": who[0], "password": who[1]} if who else {}
        with pymongo.MongoClient(
            "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=2000, **login
        ) as client:
            yield client

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(DEADLINE_S)

    def empty(self) -> None:
        """Leave nothing in the database."""
        with self.connected() as client:
            for name in client[DBNAME].list_collection_names():
                client[DBNAME].drop_collection(name)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a command in Extended JSON as the owner; of `find`: each document as its `_id` and its bytes."""
        command = json_util.loads(statement)
        with self.connected() as client:
            if "find" not in command:
                client[DBNAME].command({**command, "writeConcern": {"w": "majority"}})
                return []
            raw = client[DBNAME].cursor_command(command, codec_options=_AS_BYTES)
            return [(each["_id"], each.raw.hex()) for each in raw]

    def insert(self, collection: str, document: dict[str, Any]) -> None:
        """Put a document there as the owner, with values of any type."""
        with self.connected() as client:
            client[DBNAME].get_collection(collection, write_concern=WriteConcern("majority")).insert_one(document)


@pytest.fixture(scope="module")
def mongodb() -> Iterator[Mongodb]:
    if shutil.which("mongod") is None:
        pytest.skip("mongod is not installed")
    with tempfile.TemporaryDirectory(prefix="autoclave-mongodb-", ignore_cleanup_errors=True) as folder:
        server = Mongodb(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()
