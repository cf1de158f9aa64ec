"""Transactions of MongoDB that stay open until somebody decides.

Each is open in a session of this process, and ends with it: nobody else can commit it. The server ends it, too, after
`transactionLifetimeLimitSeconds`, which are 60 where nobody changed them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from autoclave.runtime.databases.clocks import Clocks
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.mongodb.connection import Server
from autoclave.runtime.databases.mongodb.failures import Busy, translated

MOST_S = 55.0
"""For so long one may be held; the rest of what the server permits is for what is done in it."""


class Holding:
    """Held transactions of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.RLock()
        self._sessions: dict[str, Any] = {}
        self._ends: dict[str, bool] = {}
        self._clocks = Clocks()

    def close(self) -> None:
        """Roll all of them back."""
        self._clocks.stop()
        for action in list(self._sessions):
            self._expire(action)

    def hold(self, action: str, run: Callable[[Any], None], keep: Callable[[Json], None]) -> None:
        """Run something in a transaction that stays open."""
        hold_s = self._server.settings.hold_s

        def once() -> Any:
            session, until = self._server.begin(), time.time() + hold_s
            try:
                run(session)
                keep({"until": until})
            except BaseException:
                self._server.end(session)
                raise
            return session

        self._sessions[action] = self._server.until_free(once)
        self._clocks.after(hold_s, lambda: self._expire(action))

    def _expire(self, action: str) -> None:
        with self._lock:
            if (session := self._sessions.pop(action, None)) is not None:
                self._ends[action] = False
                self._server.end(session)

    def is_open(self, action: str, is_there: Callable[[Any], object]) -> bool:
        """Whether one still is. `is_there` reads something in it."""
        with self._lock:
            session = self._sessions.get(action)
            if session is None:
                return False
            try:
                with translated(self._server.where):
                    is_there(session)
            except Busy:  # the server has ended it
                self._expire(action)
                return False
            return True

    def ended(self, action: str) -> bool | None:
        """Whether it was committed, as far as we have ended it ourselves."""
        return self._ends.get(action)

    def end(self, action: str, *, commit: bool) -> None:
        """Commit or roll back; nothing if it is over.

        Raises:
            InDoubt: the answer was lost meanwhile.
        """
        with self._lock:
            session = self._sessions.pop(action, None)
            if session is None:
                return
            try:
                if commit:
                    with translated(self._server.where):
                        self._server.commit(session)
                self._ends[action] = commit
            except Busy:  # the server had ended it
                self._ends[action] = False
            finally:
                self._server.end(session)
