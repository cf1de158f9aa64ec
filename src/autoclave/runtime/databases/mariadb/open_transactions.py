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
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Json, Keep, TransactionState
from autoclave.runtime.databases.mariadb.connection import Server, do, rows
from autoclave.runtime.databases.mariadb.failures import number_of
from autoclave.runtime.databases.servers import BaseTransactions, prepared_as
from autoclave.runtime.interface import InDoubt

_PATIENCE_S, _PAUSE_S = 5.0, 0.05
_CACHED_S = 0.12
"""For so long the server tells what it told before, of transactions and who waits for them."""
_NOT_THERE = 1397
_OWN = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()"
_WAITING = (
    "SELECT DISTINCT r.trx_mysql_thread_id FROM information_schema.innodb_lock_waits w JOIN "
    "information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id WHERE w.blocking_trx_id = {}"
)


class OpenTransactions(BaseTransactions):
    """Open transactions of one server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._ends: dict[str, bool] = {}
        """Whether those that we have ended were committed."""

    def begin(self, action: str, run: Callable[[Any], Effect], keep: Keep) -> None:
        """Run something in a transaction that stays open."""
        import pymysql

        timeout_s, name = self._server.settings.transaction_timeout_s, _quoted(action)
        with self._server.translated(), contextlib.closing(self._server.connect()) as connection:
            do(connection, f"SET SESSION timestamp = {time.time():.6f}")
            do(connection, f"XA START {name}")
            effect, number = run(connection), ""
            with contextlib.suppress(pymysql.Error):  # of a user who may not see it
                time.sleep(_CACHED_S)
                number = "".join(number for (number,) in rows(connection, _OWN))
            do(connection, f"XA END {name}")
            keep(effect, {"until": time.time() + timeout_s, "transaction": number})
            do(connection, f"XA PREPARE {name}")
        self.expires(action, timeout_s)

    def is_over(self, action: str) -> bool:
        import pymysql

        with contextlib.suppress(pymysql.Error, HostError), contextlib.closing(self._server.connect()) as connection:
            if _is_prepared(connection, action):
                do(connection, f"XA ROLLBACK {_quoted(action)}")
                self._ends[action] = False
            return True
        return False

    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        with self._server.translated():
            if not _is_prepared(self._server.connection, action):
                return TransactionState(False, self._ends.get(action))
            number, waiting = f"{mark.get('transaction', '')}", []
            if number.isdigit():
                time.sleep(_CACHED_S)
                waiting = rows(self._server.connection, _WAITING.format(number))
        return TransactionState(True, waiting=tuple(f"connection {thread}" for (thread,) in sorted(waiting)))

    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over.

        Raises:
            InDoubt: the connection was lost meanwhile.
        """
        until = time.monotonic() + _PATIENCE_S
        while self._is_there(action) and not self._is_decided(action, commit):
            if time.monotonic() > until:
                raise HostError(f"{self._server.where}: another connection still has the transaction. Fix: try again")
            time.sleep(_PAUSE_S)

    def _is_there(self, action: str) -> bool:
        with self._server.translated():
            return _is_prepared(self._server.connection, action)

    def _is_decided(self, action: str, commit: bool) -> bool:
        """Whether it could be ended: not while the server has not seen the end of the connection that prepared it."""
        import pymysql

        connection = self._server.connection
        try:
            with self._server.translated():
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


def _is_prepared(connection: Any, action: str) -> bool:
    name = prepared_as(action)
    return any(data in (name, name.encode()) for *_, data in rows(connection, "XA RECOVER"))


def _quoted(action: str) -> str:
    return f"x'{prepared_as(action).encode().hex()}'"
