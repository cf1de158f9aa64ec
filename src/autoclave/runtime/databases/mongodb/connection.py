"""A MongoDB server, and transactions on it.

A transaction reads one snapshot, and is committed when most of the replica set has it. It waits for nobody: where
others change what it changes, the server ends it, and it is tried again for `lock_timeout_s`.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.mongodb.failures import Busy, translated
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import InDoubt

_CONNECT_MS = 10_000
_MORE_MS = 10_000
"""For so long after its own time an answer is waited for."""
_PORT = 27017
_PAUSE_S = 0.05
_COMMITS = 3
T = TypeVar("T")


class Server:
    """One database of one replica set, as `user` of the settings."""

    def __init__(self, name: str, settings: DatabaseConnection, password: str) -> None:
        self.where, self.settings = f"database {name}", settings
        self.statement_ms = max(1, round(settings.statement_timeout_s * 1000))
        self._leases: dict[str, socket.socket] = {}
        with contextlib.ExitStack() as opening, translated(self.where):
            self._client = self._opened(password)
            opening.callback(self._client.close)
            self._set = replica_set(self.where, self._client.admin.command("hello"))
            status = self._client.admin.command({"connectionStatus": 1, "showPrivileges": True})
            require_rights(self.where, status, settings.dbname)
            opening.pop_all()

    def _opened(self, password: str) -> Any:
        import pymongo

        settings, port = self.settings, self.settings.port or _PORT
        is_socket = settings.host.startswith("/")
        return pymongo.MongoClient(
            quote(f"{settings.host}/mongodb-{port}.sock", safe="") if is_socket else settings.host or "localhost",
            port,
            directConnection=is_socket,
            username=settings.user,
            password=password,
            authSource=settings.dbname,
            appname="autoclave",
            connectTimeoutMS=_CONNECT_MS,
            serverSelectionTimeoutMS=_CONNECT_MS,
            socketTimeoutMS=self.statement_ms + _MORE_MS,
        )

    @property
    def database(self) -> Any:
        return self._client[self.settings.dbname]

    def close(self) -> None:
        """Let go of connections and leases. Transactions that are open are rolled back."""
        for lease in self._leases.values():
            lease.close()
        self._leases.clear()
        self._client.close()

    # --- Transactions -----------------------------------------------------------------------------------------------

    def begin(self) -> Any:
        """A session with a new transaction. It is no good after the server has ended it."""
        from pymongo import ReadPreference
        from pymongo.read_concern import ReadConcern
        from pymongo.write_concern import WriteConcern

        session = self._client.start_session()
        session.start_transaction(
            ReadConcern("snapshot"),
            WriteConcern("majority"),
            ReadPreference.PRIMARY,
            max_commit_time_ms=self.statement_ms,
        )
        return session

    def attempt(self, run: Callable[[Any], T]) -> T:
        """What `run` gives in a transaction, which is rolled back unless it is committed there (`commit`).

        Raises:
            Busy: others stood against it for longer than lock_timeout_s.
        """

        def once() -> T:
            session = self.begin()
            try:
                return run(session)
            finally:
                self.end(session)

        return self.until_free(once)

    def until_free(self, run: Callable[[], T]) -> T:
        """What `run` gives, as soon as others do not stand against it. Nothing of it stays where it raises `Busy`."""
        until = time.monotonic() + self.settings.lock_timeout_s
        while True:
            try:
                with translated(self.where):
                    return run()
            except Busy:
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_S)

    def end(self, session: Any) -> None:
        """Roll back what is not committed."""
        from pymongo.errors import PyMongoError

        with contextlib.suppress(PyMongoError):  # the server rolls back by itself
            session.end_session()

    def commit(self, session: Any) -> None:
        """Commit.

        Raises:
            InDoubt: the connection was lost meanwhile, or most of the replica set does not have it in time.
        """
        from pymongo.errors import PyMongoError, WriteConcernError

        for number in range(_COMMITS):
            try:
                session.commit_transaction()
            except PyMongoError as error:
                is_unknown = error.has_error_label("UnknownTransactionCommitResult")
                if not is_unknown and not number and not isinstance(error, WriteConcernError):
                    raise
                if not is_unknown:
                    break
            else:
                return
        raise InDoubt(f"{self.where}: the answer was lost while it was committed")

    def lease(self, place: str) -> None:
        """Keep other sessions of ours on this machine from a collection.

        Raises:
            InputError: another one has it.
        """
        if place in self._leases:
            return
        name = hashlib.sha256(f"{self._set}/{place}".encode()).hexdigest()
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lease.bind(f"\0autoclave/mongodb/{name}")
        except OSError:
            lease.close()
            raise InputError(
                f"{self.where}: another session works on collection {place}; wait for it, or end it"
            ) from None
        self._leases[place] = lease


def replica_set(where: str, hello: Mapping[str, Any]) -> str:
    """By which name a replica set is known, by what its server says of itself.

    Raises:
        InputError: it is of none, so it has no transactions.
        HostError: it is not the one that takes writes.
    """
    if not hello.get("setName"):
        raise InputError(
            f"{where}: is no replica set, and so has no transactions. Mend: start mongod with --replSet and "
            "run rs.initiate(); one server is enough. Sharded clusters are not supported"
        )
    if not hello.get("isWritablePrimary"):
        raise HostError(f"{where}: the server is not the primary of its replica set. Mend: name the one that is")
    return f"{hello['setName']}/{','.join(sorted(hello.get('hosts', ())))}"


def require_rights(where: str, status: Mapping[str, Any], dbname: str) -> None:
    """Check that a user may do nothing outside of a database, by the answer to `connectionStatus`.

    Raises:
        InputError: it may, or the server lets everybody do everything.
    """
    told = status["authInfo"]
    if not told["authenticatedUsers"]:
        raise InputError(
            f"{where}: the server asks for no user, so everybody may do everything. Mend: start it with --keyFile"
        )
    for each in told["authenticatedUserPrivileges"]:
        resource = each["resource"]
        if resource.get("db") != dbname:
            there = f"database {resource['db']}" if resource.get("db") else "all databases, or the server itself"
            raise InputError(
                f"{where}: the user has rights on {there} ({', '.join(sorted(each['actions'])[:5])}). "
                f"Mend: name one with rights on {dbname} alone"
            )
