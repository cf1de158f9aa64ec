"""Transactions of an SQLite file that stay open until somebody decides; each on a connection of its own.

None survives our end: the file is as it was before. A clock of ours rolls back what nobody has decided about.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from autoclave.runtime.databases.clocks import Clocks
from autoclave.runtime.databases.engine import Json
from autoclave.runtime.databases.sqlite.failures import translated

if TYPE_CHECKING:
    import apsw


class OpenTransactions:
    """Open transactions of one file. `require_same` is asked before anything is begun or committed."""

    def __init__(
        self, connect: Callable[[], apsw.Connection], require_same: Callable[[], None], timeout_s: float, where: str
    ) -> None:
        self._connect, self._require_same, self._timeout_s, self._where = connect, require_same, timeout_s, where
        self._open: dict[str, apsw.Connection] = {}
        self._ends: dict[str, bool] = {}
        self._clocks = Clocks()
        self._lock = threading.Lock()

    def begin(self, action: str, run: Callable[[apsw.Connection], None], keep: Callable[[Json], None]) -> None:
        """Run something in a transaction that stays open."""
        connection = self._connect()
        try:
            with translated(self._where):
                connection.execute("BEGIN IMMEDIATE")
                self._require_same()
                run(connection)
                keep({"until": time.time() + self._timeout_s})
        except BaseException:
            connection.close()
            raise
        self._open[action] = connection
        self._clocks.after(self._timeout_s, lambda: self._end(action, False))

    def is_open(self, action: str) -> bool:
        """Whether nobody has decided yet."""
        with self._lock:
            return action in self._open

    def ended(self, action: str) -> bool | None:
        """Whether it was committed; None: not by us."""
        return self._ends.get(action)

    def end(self, action: str, *, commit: bool) -> None:
        """Commit it, or roll it back; nothing if there is none."""
        with translated(self._where):
            self._end(action, commit)

    def _end(self, action: str, commit: bool) -> None:
        with self._lock:
            connection = self._open.get(action)
            if connection is None:
                return
            if commit:
                self._require_same()
            connection.execute("COMMIT" if commit else "ROLLBACK")
            connection.close()
            del self._open[action]
            self._ends[action] = commit

    def close(self) -> None:
        """Roll back what is open."""
        self._clocks.stop()
        for action in list(self._open):
            self._end(action, False)
