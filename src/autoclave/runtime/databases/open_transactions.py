"""Transactions that stay open until somebody decides, each on a connection of its own.

A clock rolls back what nobody has decided about in time. What is open ends with this process, unless an engine keeps it
elsewhere (`is_durable`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autoclave.core import AutoclaveError, HostError

if TYPE_CHECKING:
    from autoclave.runtime.databases.effects import Effect
    from autoclave.runtime.databases.engine import Engine
    from autoclave.runtime.databases.operations import Sql

_AGAIN_S = 2.0


class OpenTransactions:
    """Those of one database, by the names of their actions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, Any] = {}
        self._ends: dict[str, bool] = {}
        """Whether those that we have ended were committed."""
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def is_durable(self) -> bool:
        """Return whether an open transaction outlives the process that opened it."""
        return False

    def open(self, action: str, operation: Sql, keep: Callable[[Effect, Mapping[str, Any]], None]) -> None:
        """Run statements, call `keep`, and leave the transaction open under the name of the action.

        Raises:
            InputError, HostError: as `Engine.rehearse`; nothing was done.
        """
        timeout_s = self._engine.settings.transaction_timeout_s
        with contextlib.ExitStack() as unless_open, self._engine.translated():
            connection = self._engine.connect()
            unless_open.callback(_close, connection)
            effect, mark = self._engine.run_open(connection, operation)
            keep(effect, {**mark, "until": time.time() + timeout_s})
            if not self.is_kept_elsewhere(action, connection):
                unless_open.pop_all()
                self._open[action] = connection
        self._expires(action, timeout_s)

    def is_kept_elsewhere(self, action: str, connection: Any) -> bool:
        """Have a transaction outlive its connection; False: it is to stay open here."""
        return False

    def is_open(self, action: str, mark: Mapping[str, Any]) -> bool:
        """Whether nobody has ended it yet."""
        with self._lock:
            return action in self._open

    def was_committed(self, action: str, mark: Mapping[str, Any]) -> bool | None:
        """Whether one that is not open any more was committed; None: the rows tell, if anything does."""
        return self._ends.get(action)

    def end(self, action: str, *, commit: bool) -> None:
        """Commit an open transaction, or roll it back. Nothing if there is none.

        Raises:
            HostError: the database is busy or away.
            InDoubt: the connection was lost while it was committed.
        """
        with self._engine.translated(), self._lock:
            if (connection := self._open.get(action)) is None:
                return
            is_over = True
            try:
                if commit:
                    self._engine.commit(connection)
                self._ends[action] = commit
            except HostError:  # the database is busy
                is_over = False
                raise
            finally:
                if is_over:
                    del self._open[action]
                    _close(connection)

    def _expires(self, action: str, seconds: float) -> None:
        def expire() -> None:
            try:
                self.end(action, commit=False)
            except AutoclaveError:
                self._expires(action, _AGAIN_S)

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        if not self._is_closed:
            timer.start()
            self._timers.append(timer)

    def close(self) -> None:
        """Stop the clocks, and roll back what is open here."""
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        for action in list(self._open):
            self.end(action, commit=False)


def _close(connection: Any) -> None:
    """Close a connection, which rolls back what was not committed."""
    with contextlib.suppress(Exception):  # it may be lost already
        connection.close()
