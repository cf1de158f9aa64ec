"""Transactions of MariaDB that stay open until somebody decides.

Each is prepared in two phases (XA) under the name of its action: it survives our end and the server's, and any
connection can end it. Nothing rolls it back by itself but a clock of ours, or the next session that looks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from autoclave.core import HostError
from autoclave.runtime.databases.clocks import Clocks
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.mariadb.connection import Server, do, let_go, rows
from autoclave.runtime.databases.mariadb.failures import number_of, translated
from autoclave.runtime.interface import InDoubt

_PATIENCE_S = 5.0
_PAUSE_S = 0.05
_AGAIN_S = 2.0
_CACHED_S = 0.12
"""For so long the server tells what it told before, of transactions and who waits for them."""
_NOT_THERE = 1397
_OWN = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()"
_WAITING = (
    "SELECT DISTINCT r.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w JOIN "
    "information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id WHERE w.blocking_trx_id = {}"
)


class Holding:
    """Held transactions of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ends: dict[str, bool] = {}
        self._clocks = Clocks()

    def close(self) -> None:
        """Stop the clocks. What is prepared stays."""
        self._clocks.stop()

    def hold(self, action: str, run: Callable[[Any], None], keep: Callable[[Json], None]) -> None:
        """Run something in a transaction that stays open."""
        import pymysql

        hold_s, where = self._server.settings.hold_s, self._server.where
        with translated(where):
            connection = self._server.connect()
            try:
                do(connection, f"SET SESSION timestamp = {time.time():.6f}")
                do(connection, f"XA START {_quoted(action)}")
                run(connection)
                number = self._number(connection)
                do(connection, f"XA END {_quoted(action)}")
                keep({"until": time.time() + hold_s, "transaction": number})
                do(connection, f"XA PREPARE {_quoted(action)}")
            finally:
                with contextlib.suppress(pymysql.Error):
                    let_go(connection)
        self._clocks.after(hold_s, lambda: self._expire(action))

    def _number(self, connection: Any) -> str:
        """By which the server tells who waits for a transaction; empty where the user may not see it."""
        import pymysql

        for _ in range(3):
            with contextlib.suppress(pymysql.Error):
                for (number,) in rows(connection, _OWN):
                    return number
            time.sleep(_CACHED_S)
        return ""

    def _expire(self, action: str) -> None:
        """Roll back what is still held, on a connection of this thread's own; again while none is to be had."""
        import pymysql

        try:
            connection = self._server.connect()
            try:
                do(connection, f"XA ROLLBACK {_quoted(action)}")
                self._ends[action] = False
            finally:
                let_go(connection)
        except (pymysql.Error, HostError) as error:
            if number_of(error) != _NOT_THERE or self._is_there(action):
                self._clocks.after(_AGAIN_S, lambda: self._expire(action))

    def _is_there(self, action: str) -> bool:
        """Whether it is still prepared, as long as the server does not say that it is not."""
        import pymysql

        try:
            connection = self._server.connect()
        except (pymysql.Error, HostError):
            return True
        try:
            name = _name(action)
            return any(data in (name, name.encode()) for *_, data in rows(connection, "XA RECOVER"))
        except pymysql.Error:
            return True
        finally:
            let_go(connection)

    def is_open(self, action: str) -> bool:
        with translated(self._server.where):
            prepared = rows(self._server.connection, "XA RECOVER")
        name = _name(action)
        return any(data in (name, name.encode()) for *_, data in prepared)

    def ended(self, action: str) -> bool | None:
        """Whether it was committed, as far as we have ended it ourselves."""
        return self._ends.get(action)

    def waiting(self, mark: Json) -> tuple[str, ...]:
        import pymysql

        number = f"{mark.get('transaction', '')}"
        if not number.isdigit():
            return ()
        time.sleep(_CACHED_S)
        try:
            found = rows(self._server.connection, _WAITING.format(number))
        except pymysql.Error:
            return ()
        return tuple(f"connection {thread}" for (thread,) in sorted(found))

    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over.

        Raises:
            InDoubt: the connection was lost meanwhile.
        """
        until = time.monotonic() + _PATIENCE_S
        while self.is_open(action) and not self._is_decided(action, commit):
            if time.monotonic() > until:
                raise HostError(f"{self._server.where}: another connection still has the transaction. Fix: try again")
            time.sleep(_PAUSE_S)

    def _is_decided(self, action: str, commit: bool) -> bool:
        """Whether it could be ended: not while the server has not seen the end of the connection that prepared it."""
        import pymysql

        connection = self._server.connection
        try:
            with translated(self._server.where):
                try:
                    do(connection, f"XA {'COMMIT' if commit else 'ROLLBACK'} {_quoted(action)}")
                except pymysql.Error as error:
                    if number_of(error) == _NOT_THERE:
                        return False
                    raise
        except HostError:
            if commit and not connection.open:
                raise InDoubt(f"{self._server.where}: the connection was lost while it was committed") from None
            raise
        self._ends[action] = commit
        return True


def _name(action: str) -> str:
    """Under which a held transaction is prepared."""
    return f"autoclave-{action}"


def _quoted(action: str) -> str:
    return f"x'{_name(action).encode().hex()}'"
