"""Transactions of PostgreSQL that stay open until somebody decides.

Where the server keeps prepared transactions (`max_prepared_transactions` above 0), an open one is prepared under the
name of its action: it survives our end and the server's, and any connection can end it. Elsewhere it lives with a
connection of its own, and the server rolls it back when its time is over, or when we die.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Json, Keep, TransactionState
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.role import Role
from autoclave.runtime.databases.servers import BaseTransactions, prepared_as
from autoclave.runtime.interface import InDoubt

_PATIENCE_S, _PAUSE_S = 5.0, 0.05
_WAITING = """
SELECT DISTINCT a.pid, a.application_name, a.wait_event_type
FROM pg_catalog.pg_locks h JOIN pg_catalog.pg_locks w
    ON w.locktype = h.locktype AND w.database IS NOT DISTINCT FROM h.database
    AND w.relation IS NOT DISTINCT FROM h.relation
    AND w.transactionid IS NOT DISTINCT FROM h.transactionid AND NOT w.granted AND h.granted
JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid
WHERE h.virtualtransaction IN (SELECT virtualtransaction FROM pg_catalog.pg_locks
    WHERE locktype = 'transactionid' AND granted AND transactionid = %s::xid8::xid)
ORDER BY 1
"""


class OpenTransactions(BaseTransactions):
    """Open transactions of one database."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._open: dict[str, Any] = {}

    def close(self) -> None:
        """Let go; what is not prepared is rolled back."""
        super().close()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def begin(self, action: str, run: Callable[[Role], Effect], keep: Keep) -> None:
        """Run something in a transaction that stays open."""
        timeout_s = self._server.settings.transaction_timeout_s
        with contextlib.ExitStack() as unless_held, self._server.translated():
            connection = unless_held.enter_context(contextlib.closing(self._server.connect()))
            role = Role(self._server, connection)
            self._server.begin(connection)
            effect = run(role)
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {int(timeout_s * 1000)}")
            keep(effect, {**self._server.mark(connection), "until": time.time() + timeout_s})
            if self.is_durable(connection):
                connection.execute(f"PREPARE TRANSACTION '{prepared_as(action)}'")
            else:
                self._open[action] = connection
                unless_held.pop_all()
        self.expires(action, timeout_s)

    def is_durable(self, connection: Any) -> bool:
        """Return whether the server keeps prepared transactions."""
        with self._server.translated():
            return connection.execute("SHOW max_prepared_transactions").fetchone() != ("0",)

    def is_over(self, action: str) -> bool:
        import psycopg

        try:
            if action not in self._open:  # the server ends that by itself
                with contextlib.closing(self._server.connect()) as connection:
                    connection.execute(f"ROLLBACK PREPARED '{prepared_as(action)}'")
        except psycopg.errors.UndefinedObject:
            return True  # somebody has ended it
        except psycopg.Error:
            return False
        return True

    def transaction_state(self, action: str, mark: Json) -> TransactionState:
        until = time.monotonic() + _PATIENCE_S
        while (status := self._server.status(mark)[0]) == "in progress" and not self._is_kept(action):
            if time.monotonic() > until:
                raise InDoubt(f"{self._server.where}: the server still ends the transaction of a connection that died")
            time.sleep(_PAUSE_S)
        if status != "in progress":
            return TransactionState(False, status == "committed")
        with self._server.translated():
            rows = self._server.connection.execute(_WAITING, (mark["transaction"],)).fetchall()
        return TransactionState(True, waiting=tuple(f"process {pid} of {name or 'somebody'}" for pid, name, _ in rows))

    def _is_kept(self, action: str) -> bool:
        """Whether a transaction is open here or prepared, and is not that of a connection that died."""
        query = "SELECT FROM pg_catalog.pg_prepared_xacts WHERE gid = %s"
        with self._server.translated():
            return action in self._open or bool(
                self._server.connection.execute(query, (prepared_as(action),)).fetchall()
            )

    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over."""
        import psycopg

        word = "COMMIT" if commit else "ROLLBACK"
        if connection := self._open.pop(action, None):
            with contextlib.closing(connection):
                if commit:
                    with self._server.translated():
                        self._server.commit(connection)
            return
        with self._server.translated(), contextlib.suppress(psycopg.errors.UndefinedObject):
            self._server.connection.execute(f"{word} PREPARED '{prepared_as(action)}'")
