"""Transactions of PostgreSQL that stay open until somebody decides.

Where the server keeps prepared transactions (`max_prepared_transactions` above 0), a held one is prepared under the
name of its action: it survives our end and the server's, and any connection can end it. Elsewhere it lives with a
connection of its own, and the server rolls it back when its time is over, or when we die.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from autoclave.runtime.databases.clocks import Clocks
from autoclave.runtime.databases.engine import Held, Json
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.failures import translated
from autoclave.runtime.databases.postgresql.role import Role
from autoclave.runtime.interface import InDoubt

_PATIENCE_S = 5.0
_PAUSE_S = 0.05
_AGAIN_S = 2.0
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


class Holding:
    """Held transactions of one database."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open: dict[str, Any] = {}
        self._clocks = Clocks()

    def close(self) -> None:
        """Let go; what is not prepared is rolled back."""
        self._clocks.stop()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def hold(self, action: str, run: Callable[[Role], None], keep: Callable[[Json], None]) -> None:
        """Run something in a transaction that stays open."""
        hold_s = self._server.settings.hold_s
        connection = self._server.connect()
        try:
            with translated(self._server.where):
                (most,) = connection.execute("SHOW max_prepared_transactions").fetchone()
                role = Role(self._server, connection)
                self._server.begin(connection)
                run(role)
                connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {int(hold_s * 1000)}")
                is_prepared = int(most) > 0
                keep({**self._server.mark(connection), "until": time.time() + hold_s, "prepared": is_prepared})
                if is_prepared:
                    connection.execute(f"PREPARE TRANSACTION '{_name(action)}'")
                    connection.close()
        except BaseException:
            connection.close()
            raise
        if not connection.closed:
            self._open[action] = connection
        self._clocks.after(hold_s, lambda: self._expire(action))

    def _expire(self, action: str) -> None:
        """Roll back what is still held, on a connection of this thread's own; again while none is to be had."""
        if action in self._open:
            return  # the server does it
        import psycopg

        try:
            with contextlib.closing(self._server.connect()) as connection:
                connection.execute(f"ROLLBACK PREPARED '{_name(action)}'")
        except psycopg.errors.UndefinedObject:
            return  # somebody has ended it
        except psycopg.Error:
            self._clocks.after(_AGAIN_S, lambda: self._expire(action))

    def held(self, action: str, mark: Json) -> Held:
        until = time.monotonic() + _PATIENCE_S
        while (status := self._server.status(mark)[0]) == "in progress" and not self._is_kept(action):
            if time.monotonic() > until:
                raise InDoubt(f"{self._server.where}: the server still ends the transaction of a connection that died")
            time.sleep(_PAUSE_S)
        if status != "in progress":
            return Held(False, status == "committed")
        with translated(self._server.where):
            rows = self._server.connection.execute(_WAITING, (mark["transaction"],)).fetchall()
        return Held(True, waiting=tuple(f"process {pid} of {name or 'somebody'}" for pid, name, _ in rows))

    def _is_kept(self, action: str) -> bool:
        """Whether a transaction is held by us or prepared, and is not that of a connection that died."""
        query = "SELECT FROM pg_catalog.pg_prepared_xacts WHERE gid = %s"
        with translated(self._server.where):
            return action in self._open or bool(self._server.connection.execute(query, (_name(action),)).fetchall())

    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over."""
        import psycopg

        word = "COMMIT" if commit else "ROLLBACK"
        if connection := self._open.pop(action, None):
            with contextlib.closing(connection):
                if commit:
                    with translated(self._server.where):
                        self._server.commit(connection)
            return
        with translated(self._server.where), contextlib.suppress(psycopg.errors.UndefinedObject):
            self._server.connection.execute(f"{word} PREPARED '{_name(action)}'")


def _name(action: str) -> str:
    """Under which a held transaction is prepared."""
    return f"autoclave-{action}"
