"""Transactions of PostgreSQL that stay open until somebody decides.

Where the server keeps prepared transactions (`max_prepared_transactions` above 0), an open one is prepared under the
name of its action: it survives our end and the server's, and any connection can end it. Elsewhere it lives with a
connection of its own, and the server rolls it back when its time is over, or when we die.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from autoclave.runtime.databases.engine import OpenTransactions
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.interface import InDoubt

_PATIENCE_S, _PAUSE_S = 5.0, 0.05


class PreparedTransactions(OpenTransactions):
    """See `OpenTransactions`."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

    def is_durable(self) -> bool:
        with self._server.translated():
            return self._server.connection.execute("SHOW max_prepared_transactions").fetchone() != ("0",)

    def is_kept_elsewhere(self, action: str, connection: Any) -> bool:
        if is_durable := self.is_durable():
            connection.execute(f"PREPARE TRANSACTION '{_prepared_as(action)}'")
        return is_durable

    def is_open(self, action: str, mark: Mapping[str, Any]) -> bool:
        until = time.monotonic() + _PATIENCE_S
        while (status := self._server.status(mark)[0]) == "in progress" and not self._is_kept(action):
            if time.monotonic() > until:
                raise InDoubt(f"{self._server.where}: the server still ends the transaction of a connection that died")
            time.sleep(_PAUSE_S)
        return status == "in progress"

    def _is_kept(self, action: str) -> bool:
        """Whether a transaction is open here or prepared, and is not that of a connection that died."""
        query = "SELECT FROM pg_catalog.pg_prepared_xacts WHERE gid = %s"
        with self._server.translated():
            found = self._server.connection.execute(query, (_prepared_as(action),)).fetchall()
        return action in self._open or bool(found)

    def was_committed(self, action: str, mark: Mapping[str, Any]) -> bool:
        return self._server.status(mark)[0] == "committed"

    def end(self, action: str, *, commit: bool) -> None:
        import psycopg

        if action in self._open:
            super().end(action, commit=commit)
            return
        with (
            self._server.translated(),
            contextlib.closing(self._server.connect()) as connection,  # a clock has a thread of its own
            contextlib.suppress(psycopg.errors.UndefinedObject),
        ):
            connection.execute(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{_prepared_as(action)}'")


def _prepared_as(action: str) -> str:
    """The name under which a server keeps an open transaction."""
    return f"autoclave-{action}"
