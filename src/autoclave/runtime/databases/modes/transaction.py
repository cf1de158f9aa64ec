"""Its transaction stays open, with its locks, until it is committed or rolled back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Json, Keep, Reading, TransactionState
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.modes.base import ActionMode, Rehearsed
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, NotUndone


class TransactionMode(ActionMode):
    """By rolling back. Knows which tables the open transaction of which action has changed."""

    is_left_open: ClassVar[bool] = True

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

    def rehearse(self, sql: Sql, mode: Mode, reading: Reading) -> Rehearsed:
        effect = self._databases.engine(sql.database).rehearse(sql, mode)
        seconds = self._databases.settings(sql.database).transaction_timeout_s
        told = [f"leave the transaction open, with its locks, until commit or undo, for {seconds:g} s at most"]
        if sql.undo:
            told.append("warning: the supplied undo is ignored: the transaction is rolled back instead")
        guarantee = Guarantee.EQUIVALENT if effect.side_effects else Guarantee.EXACT
        return Rehearsed(effect, guarantee, tuple(told), reading.defines)

    def execute(self, action: str, sql: Sql, started: Json, keep: Keep) -> None:
        self._databases.engine(sql.database).open_transaction(action, sql, keep)
        self._know(action, started)

    def _know(self, action: str, told: Json) -> None:
        tables = frozenset("/".join(key.split("/")[2:4]) for key in told["writes"])
        self._tables[action] = told["database"], tables

    def in_receipt(self, action: str, started: Json, effect: Effect) -> Json:
        mark = self._kept.get_mark(action, started["images"]) or {}
        return {**super().in_receipt(action, started, effect), "open_until": mark["until"]}

    def was_done(self, action: str, started: Json, mark: Json) -> bool:
        state = self._state(action, started)
        return state.is_open or bool(state.is_committed)

    def put_back(self, action: str, started: Json) -> bool:
        if self._kept.get_mark(action, "done") is None:
            return True
        self._end(action, started, commit=False)
        return not self._state(action, started).is_committed

    def _end(self, action: str, told: Json, *, commit: bool) -> None:
        self._databases.engine(told["database"]).end_transaction(action, commit=commit)
        self.forget(action)

    def _state(self, action: str, told: Json) -> TransactionState:
        engine, mark = self._databases.engine(told["database"]), self._kept.get_mark(action, "done") or {}
        state = engine.transaction_state(action, mark)
        if state.is_committed is None and not engine.is_durable() and not self._kept.get_mark(action, "committing"):
            return replace(state, is_committed=False)  # nothing but this process could commit it
        if state.is_committed is None:
            effect = self._kept.get(action, "done")
            tells = not effect.is_nothing or "definitions" in mark
            state = replace(state, is_committed=tells and engine.was_committed(mark, effect))
        return state

    def commit(self, action: str, receipt: Json) -> None:
        self._kept.put_mark(action, "committing", {"database": receipt["database"]})
        with contextlib.suppress(InDoubt):  # it is looked at
            self._end(action, receipt, commit=True)
        self.forget(action)
        if not self._state(action, receipt).is_committed:
            raise InputError(f"action {action}: its transaction was rolled back before it was committed")

    def lapsed(self, action: str, receipt: Json) -> str:
        """Why a transaction ended by itself, or is to end, since its time is over; empty if not."""
        if receipt["database"] not in self._databases:
            return ""
        state = self._state(action, receipt)
        if state.is_open and time.time() < receipt["open_until"]:
            self._know(action, receipt)
            return ""
        if state.is_committed:
            return ""
        return "its time was over" if state.is_open else "its transaction ended with the connection that held it"

    def forget(self, action: str) -> None:
        """It holds nothing any more."""
        self._tables.pop(action, None)

    def obstacle(self, action: str, receipt: Json) -> str:
        if self._state(action, receipt).is_committed:
            return "its transaction is committed, and a transaction leaves nothing to undo it by"
        return ""

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        """None: nobody else can change them."""
        return ()

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        return {"images": ""}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        self._end(action, undoing, commit=False)
        if is_late and self._state(action, undoing).is_committed:
            raise NotUndone("its transaction is committed, and an open one leaves nothing to undo it by")

    def plan_redo(self, action: str, undone: Json) -> str:
        raise InputError(f"action {action}: a transaction that was rolled back is not done again; propose it anew")

    def differences(self, action: str, receipt: Json) -> list[str]:
        """Until when it is open, and who waits for it."""
        state = self._state(action, receipt)
        if not state.is_open:
            return []
        until = datetime.fromtimestamp(receipt["open_until"], UTC).isoformat(timespec="seconds")
        return [f"open until {until}", *(f"waits for it: {each}" for each in state.waiting)]
