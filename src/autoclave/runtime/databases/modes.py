"""The ways in which an action on a database is done and taken back.

Which mode an action has is written in its receipt, so what follows it never asks again: it asks the mode. Methods that
are named as those of `Manager` are described there.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.core.files import sync_directory, write_atomically
from autoclave.runtime.databases.effects import AS_JSON, Effect, Image, row_name
from autoclave.runtime.databases.engine import Databases, Engine, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.operations import Operation
from autoclave.runtime.footprints import meet
from autoclave.runtime.interface import Choice, InDoubt, NothingLeft, NotRedone, NotUndone

_MARK = b'{"mark": '
"""Begins a line before an effect, with its mark."""


class KeptRows:
    """Effects and marks by action and name, in files that are whole or absent and that the owner alone may read."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._last: tuple[str, str, Effect] | None = None
        """The effect that was used last: an action that is run and undone is asked for its rows four times."""

    def put(self, action: str, name: str, effect: Effect, mark: Mapping[str, Any] | None = None) -> None:
        head = b"" if mark is None else _MARK + json.dumps(mark).encode() + b"}\n"
        self._write(action, f"{name}.json", head + effect.to_bytes())
        self._last = action, name, effect

    def get(self, action: str, name: str) -> Effect:
        if self._last is None or self._last[:2] != (action, name):
            found = self._read(action, f"{name}.json")
            if found is None:
                raise InputError(f"action {action}: the rows that it changed are not kept any more")
            effect = effect_of(found.partition(b"\n")[2] if found.startswith(_MARK) else found)
            self._last = action, name, effect
        return self._last[2]

    def effect(self, action: str, told: Mapping[str, Any]) -> Effect:
        """The effect that JSON data of an action name: `images`, as they are kept (`forwards`) or their inverse."""
        effect = self.get(action, told["images"])
        return effect if told["forwards"] else effect.inverse()

    def num_bytes(self, action: str, name: str) -> int:
        return (self._folder / action / f"{name}.json").stat().st_size

    def put_mark(self, action: str, name: str, mark: Mapping[str, Any]) -> None:
        self._write(action, f"{name}.mark", json.dumps(mark).encode())

    def get_mark(self, action: str, name: str) -> Mapping[str, Any] | None:
        """A mark; None if there is none: nothing was committed under it."""
        if (found := self._read(action, f"{name}.mark")) is not None:
            return json.loads(found)
        head = (self._read(action, f"{name}.json") or b"").partition(b"\n")[0]
        return json.loads(head)["mark"] if head.startswith(_MARK) else None

    def discard(self, action: str) -> None:
        """Forget all of an action. May be called again."""
        self._last = None
        shutil.rmtree(self._folder / action, ignore_errors=True)

    def _write(self, action: str, name: str, content: bytes) -> None:
        folder = self._folder / action
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / name, content)
        if is_new:  # afterwards: the file system has mostly written it together with the file
            sync_directory(self._folder)

    def _read(self, action: str, name: str) -> bytes | None:
        try:
            return (self._folder / action / name).read_bytes()
        except FileNotFoundError:
            return None


def effect_of(content: bytes) -> Effect:
    header, has_rows, rows = content.partition(b"\n")
    if not has_rows:
        with contextlib.suppress(ValidationError):  # whose words hold values
            if header.startswith(b'{"tables":'):
                return AS_JSON.validate_json(header)
        raise ValueError("what is kept of an action is damaged")
    from autoclave.runtime.databases.sqlite.stored import StoredEffect

    return StoredEffect.from_parts(json.loads(header), rows)


class NotWritten(HostError):
    """The database is busy or away, and it is certain that nothing was written."""


class ImagesMode:
    """It is committed at once, and undone by writing the rows that were there before.

    Before the commit, the effect and a mark are durable. A session that finds the action unfinished asks the engine
    whether the transaction of that mark was committed: so a crash leaves it done or not done, and known. To undo it is
    to write the inverse of its effect, in one transaction, under a mark of its own; to redo it, the inverse of that.
    """

    is_left_open = False

    def __init__(self, databases: Databases, kept: KeptRows) -> None:
        self._databases, self._kept = databases, kept

    def told(self, database: str) -> tuple[str, ...]:
        """Lines of a plan, beside what becomes of rows."""
        return ()

    def execute(self, action: str, sql: Operation, started: Json, keep: Keep) -> None:
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

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        return self._databases.engine(receipt["database"]).conflicting(self._kept.effect(action, receipt).inverse())

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        name, mark = receipt["database"], f"undo-{token_hex(4)}"
        if choices or default is not Choice.REFUSE:
            effect = self._kept.effect(action, receipt).inverse()
            if conflicting := self._databases.engine(name).conflicting(effect):
                if (effect := chosen(effect, conflicting, name, choices, default)).is_nothing:
                    raise NothingLeft("others have changed all of its rows since")
                self._kept.put(action, mark, effect)
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

    def __init__(self, databases: Databases, kept: KeptRows) -> None:
        super().__init__(databases, kept)
        self._tables: dict[str, tuple[str, frozenset[str]]] = {}

    def require_free(self, database: str, reading: Reading) -> None:
        """Look whether an open transaction has what an action is about. Raises InputError where one has."""
        wanted = {*reading.writes, *reading.reads, *reading.defines}
        is_whole = self._databases.settings(database).engine == "sqlite"
        for action, (name, tables) in self._tables.items():
            if name == database and (is_whole or meet(wanted, tables)):
                rule = f"has the open transaction of action {action}; commit or undo that first"
                raise InputError(f"database {database}: {rule}")

    def told(self, database: str) -> tuple[str, ...]:
        seconds = self._databases.settings(database).transaction_timeout_s
        return (f"leave the transaction open, with its locks, until commit or undo, for {seconds:g} s at most",)

    def execute(self, action: str, sql: Operation, started: Json, keep: Keep) -> None:
        self._databases.engine(sql.database).transactions.open(action, sql, keep)
        tables = frozenset("/".join(key.split("/")[2:4]) for key in started["writes"])
        self._tables[action] = sql.database, tables

    def forget(self, action: str) -> None:
        self._tables.pop(action, None)

    def _mark(self, action: str) -> Json:
        return self._kept.get_mark(action, "done") or {}

    def _is_open(self, action: str, told: Json) -> bool:
        return self._databases.engine(told["database"]).transactions.is_open(action)

    def _was_committed(self, action: str, told: Json) -> bool:
        if self._is_open(action, told):
            return False
        engine, mark = self._databases.engine(told["database"]), self._mark(action)
        if (found := engine.transactions.was_committed(action)) is not None:
            return found
        if self._kept.get_mark(action, "committing") is None:  # nothing but its process could commit it
            return False
        effect = self._kept.get(action, "done")
        is_nothing = effect.is_nothing and mark.keys() <= {"until"}
        return not is_nothing and engine.was_committed(mark, effect)

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
        """Return why a transaction ended by itself, or is to end, since its time is over; empty if not."""
        if receipt["database"] not in self._databases:
            return ""
        if self._is_open(action, receipt):
            return "its time was over" if time.time() >= self._mark(action)["until"] else ""
        is_committed = self._was_committed(action, receipt)
        return "" if is_committed else "its transaction ended with the connection that held it"

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        """None: nobody else can change them."""
        return ()

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        return {}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        self._end(action, undoing, commit=False)
        if self._was_committed(action, undoing):
            raise NotUndone("its transaction is committed, and an open one leaves nothing to undo it by")

    def plan_redo(self, action: str, undone: Json) -> Json:
        raise InputError(f"action {action}: a transaction that was rolled back is not done again; propose it again")


def chosen(
    effect: Effect,
    conflicting: Mapping[tuple[str, str], Image | None],
    database: str,
    choices: Mapping[str, Choice],
    default: Choice,
) -> Effect:
    """Return an effect with what is chosen for rows that others have changed: `conflicting`, as they are now."""
    effect = effect.plain()
    said = {(table, key): choices.get(row_name(database, table, key), default) for table, key in conflicting}
    for (table, key), choice in said.items():
        row = row_name(database, table, key)
        if choice is Choice.SAVE_ASIDE:
            raise InputError(f"{row}: a row has no other place to be saved in; choose skip or force")
        if choice is Choice.FORCE and not key:
            raise InputError(f"{row}: cannot be forced: what it is made of has changed, or its rows have no key")
    skipped = {place for place, choice in said.items() if choice is Choice.SKIP}
    whole = {table for table, key in skipped if not key}
    tables = []
    for each in effect.tables:
        if each.table in whole:
            continue
        forced = {
            key: conflicting[table, key]
            for (table, key), choice in said.items()
            if choice is Choice.FORCE and table == each.table
        }
        tables.append(each.without({key for table, key in skipped if table == each.table}).over(forced))
    return replace(effect, tables=tuple(tables))
