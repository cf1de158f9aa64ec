"""The ways in which an action on a database is done and taken back.

Which mode an action has is written in its receipt, so what follows it never asks again: it asks the mode. Methods that
are named as those of `Manager` are described there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from secrets import token_hex

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect, row_name
from autoclave.runtime.databases.engine import Engine, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.plans import chosen
from autoclave.runtime.footprints import meet
from autoclave.runtime.interface import Choice, InDoubt, NotRedone, NotUndone


class NotWritten(HostError):
    """The database is busy or away, and it is certain that nothing was written."""


class ImagesMode:
    """It is committed at once, and undone by writing the rows that were there before.

    Before the commit, the effect and a mark are durable. A session that finds the action unfinished asks the engine
    whether the transaction of that mark was committed: so a crash leaves it done or not done, and known. To undo it is
    to write the inverse of its effect, in one transaction, under a mark of its own; to redo it, the inverse of that.
    """

    is_left_open = False

    def __init__(self, databases: Databases[Engine], kept: KeptRows) -> None:
        self._databases, self._kept = databases, kept

    def told(self, database: str) -> tuple[str, ...]:
        """Lines of a plan, beside what becomes of rows."""
        return ()

    def execute(self, action: str, sql: Sql, started: Json, keep: Keep) -> None:
        self._databases.engine(sql.database).perform(sql, keep)

    def was_done(self, action: str, started: Json, mark: Json) -> bool:
        return self._databases.engine(started["database"]).was_committed(mark, self._kept.get(action, "done"))

    def put_back(self, action: str, started: Json) -> bool:
        """Take back what was committed. What was not is rolled back by the database itself."""
        mark = self._kept.get_mark(action, "done")
        if mark is None:
            return True
        try:
            if self.was_done(action, started, mark):
                effect = self._kept.get(action, "done").inverse()
                self._write(action, "back", effect, started["database"], is_late=True)
        except (InDoubt, RowConflict, Rejected):
            return False
        return True

    def commit(self, action: str, receipt: Json) -> None:
        """Nothing is left open."""

    def lapsed(self, action: str, receipt: Json) -> str:
        return ""

    def obstacle(self, action: str, receipt: Json) -> str:
        return ""

    def differences(self, action: str, receipt: Json) -> list[str]:
        """Lines about an action that was done, beside its rows."""
        return []

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        return self._databases.engine(receipt["database"]).conflicting(self._kept.effect(action, receipt).inverse())

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        name, mark = receipt["database"], f"undo-{token_hex(4)}"
        if choices or default is not Choice.REFUSE:
            effect = self._kept.effect(action, receipt).inverse()
            if conflicting := self._databases.engine(name).conflicting(effect):
                self._kept.put(action, mark, chosen(effect, conflicting, name, choices, default))
                return {"images": mark, "forwards": True, "mark": mark}
        return {"images": receipt["images"], "forwards": not receipt["forwards"], "mark": mark}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        self._write_as_planned(action, undoing, NotUndone, is_late=is_late)

    def plan_redo(self, action: str, undone: Json) -> Json:
        name, images = undone["database"], {"images": undone["images"], "forwards": not undone["forwards"]}
        if conflicting := self._databases.engine(name).conflicting(self._kept.effect(action, images)):
            rows = ", ".join(row_name(name, *place) for place in conflicting)
            raise InputError(f"action {action}: {rows} changed since it was undone")
        return {"database": name, **images, "mark": f"redo-{token_hex(4)}"}

    def redo(self, action: str, redoing: Json, *, is_late: bool) -> None:
        self._write_as_planned(action, redoing, NotRedone, is_late=is_late)

    def _write_as_planned(self, action: str, told: Json, error: type[InputError], *, is_late: bool) -> None:
        try:
            self._write(action, told["mark"], self._kept.effect(action, told), told["database"], is_late=is_late)
        except (RowConflict, Rejected, NotWritten) as refused:
            raise error(f"{refused}") from None

    def _write(self, action: str, name: str, effect: Effect, database: str, *, is_late: bool) -> None:
        """Write an effect under a mark of this name, unless that was done before a crash.

        Raises:
            RowConflict, Rejected: as `Engine.write`.
            NotWritten: the database is busy or away, and nothing was written.
            HostError: the database is away, and does not report whether it was written.
        """
        engine = self._databases.engine(database)
        if effect.is_nothing or (is_late and self._was_written(action, name, effect, engine)):
            return
        try:
            engine.write(effect, lambda _, mark: self._kept.put_mark(action, name, mark) if engine.has_marks else None)
        except InDoubt as error:
            if not self._was_written(action, name, effect, engine):
                raise NotWritten(f"{error}. Fix: try again when the database answers") from None
        except HostError as error:
            raise NotWritten(f"{error}") from None

    def _was_written(self, action: str, name: str, effect: Effect, engine: Engine) -> bool:
        mark = self._kept.get_mark(action, name) if engine.has_marks else {}
        return mark is not None and engine.was_committed(mark, effect)


class TransactionMode(ImagesMode):
    """Its transaction stays open, with its locks, until it is committed or rolled back.

    Knows which tables the open transaction of which action has changed.
    """

    is_left_open = True

    def __init__(self, databases: Databases[Engine], kept: KeptRows) -> None:
        super().__init__(databases, kept)
        self._tables: dict[str, tuple[str, frozenset[str]]] = {}

    def require_free(self, database: str, reading: Reading) -> None:
        """Look whether an open transaction has what an action is about.

        Raises:
            InputError: it has.
        """
        wanted = {*reading.writes, *reading.reads, *reading.defines}
        is_whole = self._databases.settings(database).engine == "sqlite"
        for action, (name, tables) in self._tables.items():
            if name == database and (is_whole or meet(wanted, tables)):
                rule = f"has the open transaction of action {action}; commit or undo that first"
                raise InputError(f"database {database}: {rule}")

    def told(self, database: str) -> tuple[str, ...]:
        seconds = self._databases.settings(database).transaction_timeout_s
        return (f"leave the transaction open, with its locks, until commit or undo, for {seconds:g} s at most",)

    def execute(self, action: str, sql: Sql, started: Json, keep: Keep) -> None:
        self._databases.engine(sql.database).transactions.open(action, sql, keep)
        self._know(action, started)

    def _know(self, action: str, told: Json) -> None:
        tables = frozenset("/".join(key.split("/")[2:4]) for key in told["writes"])
        self._tables[action] = told["database"], tables

    def forget(self, action: str) -> None:
        """It holds nothing any more."""
        self._tables.pop(action, None)

    def _mark(self, action: str) -> Json:
        return self._kept.get_mark(action, "done") or {}

    def _is_open(self, action: str, told: Json) -> bool:
        return self._databases.engine(told["database"]).transactions.is_open(action, self._mark(action))

    def _was_committed(self, action: str, told: Json) -> bool:
        if self._is_open(action, told):
            return False
        engine, mark = self._databases.engine(told["database"]), self._mark(action)
        if (found := engine.transactions.was_committed(action, mark)) is not None:
            return found
        if self._kept.get_mark(action, "committing") is None:  # nothing but its process could commit it
            return False
        effect = self._kept.get(action, "done")
        return (not effect.is_nothing or "definitions" in mark) and engine.was_committed(mark, effect)

    def was_done(self, action: str, started: Json, mark: Json) -> bool:
        return self._is_open(action, started) or self._was_committed(action, started)

    def put_back(self, action: str, started: Json) -> bool:
        if self._kept.get_mark(action, "done") is None:
            return True
        self._end(action, started, commit=False)
        return not self._was_committed(action, started)

    def _end(self, action: str, told: Json, *, commit: bool) -> None:
        self._databases.engine(told["database"]).transactions.end(action, commit=commit)
        self.forget(action)

    def commit(self, action: str, receipt: Json) -> None:
        self._kept.put_mark(action, "committing", {"database": receipt["database"]})
        with contextlib.suppress(InDoubt):  # it is looked at
            self._end(action, receipt, commit=True)
        self.forget(action)
        if not self._was_committed(action, receipt):
            raise InputError(f"action {action}: its transaction was rolled back before it was committed")

    def lapsed(self, action: str, receipt: Json) -> str:
        """Why a transaction ended by itself, or is to end, since its time is over; empty if not."""
        if receipt["database"] not in self._databases:
            return ""
        if self._is_open(action, receipt):
            if time.time() >= self._mark(action)["until"]:
                return "its time was over"
            self._know(action, receipt)
            return ""
        is_committed = self._was_committed(action, receipt)
        return "" if is_committed else "its transaction ended with the connection that held it"

    def obstacle(self, action: str, receipt: Json) -> str:
        if self._was_committed(action, receipt):
            return "its transaction is committed, and a transaction leaves nothing to undo it by"
        return ""

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        """None: nobody else can change them."""
        return ()

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        return {}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        self._end(action, undoing, commit=False)
        if is_late and self._was_committed(action, undoing):
            raise NotUndone("its transaction is committed, and an open one leaves nothing to undo it by")

    def plan_redo(self, action: str, undone: Json) -> Json:
        raise InputError(f"action {action}: a transaction that was rolled back is not done again; propose it anew")

    def differences(self, action: str, receipt: Json) -> list[str]:
        """Until when it is open."""
        if not self._is_open(action, receipt):
            return []
        until = datetime.fromtimestamp(self._mark(action)["until"], UTC)
        return [f"open until {until.isoformat(timespec='seconds')}"]
