"""Actions on databases: statements that are planned by running and rolling back, done, and taken back by their rows.

Theory of operation. An engine runs the statements of an action in one transaction and tells which rows went and which
came (an `Effect`). Before it commits, the effect and a mark are durable in the state. Whoever finds the action
unfinished asks the engine whether the transaction of that mark was committed: so a crash leaves it done or not done,
and known. To take an action back is to write the inverse of its effect, in one transaction, under a mark of its own; to
do it again, the inverse of that. A held action has only a transaction that is open, which is committed or rolled back.

Rows are read and written down when an action is planned. When it is done soon after, in the same process, the engine
tells by less that exactly this came about (`Effect.evidence`), and what was written down gets a second name.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import HostError, InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, Image, accesses_of, as_name, keys_of
from autoclave.runtime.databases.engine import Contested, Engine, Held, Reading, Rejected, open_engine
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.places import table_of
from autoclave.runtime.databases.reversal.outlines import is_digest
from autoclave.runtime.databases.reversal.statements import ReverseStatements, in_words, reading_of_both
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.interface import Choice, Guarantee, InDoubt, Json, NotUndone, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request

_ROOT = "databases"
_SHOWN_ROWS = 200
_REMEMBERED = 4
"""Plans that are held in memory, with the rows that they are about."""


class DatabaseManager:
    """Actions on the databases of `connections`, by the names that statements use for them.

    `state` is a folder that nobody else touches: rows are kept in it. `key_of` gives the password that a secret holds.
    A database is opened when it is first needed.
    """

    operations: Mapping[str, type[Config]] = {"sql": Sql}

    def __init__(
        self, connections: Mapping[str, DatabaseConnection], state: Path, key_of: Callable[[str], str]
    ) -> None:
        self._connections, self._kept, self._key_of = connections, KeptRows(state), key_of
        self._engines: dict[str, Engine] = {}
        self._held: dict[str, tuple[str, frozenset[str]]] = {}
        self._planned: dict[str, tuple[Plan, Effect]] = {}

    def close(self) -> None:
        """Let go of all databases. What is held, and cannot survive that, is rolled back."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    # --- Planning ---------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """See `Manager`: what the tables are made of."""
        lines: list[str] = []
        for name in self._connections:
            lines += [f"database {name} ({self._connections[name].engine})", *self._engine(name).schema().told()]
        return "\n".join(lines)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning runs the statements, so what they say they do must be permitted before."""
        sql = cast("Sql", operation)
        return Request(tuple(_asked(sql.database, self._read(sql))))

    def plan(self, action: str, operation: Config) -> Plan:
        sql = cast("Sql", operation)
        reading = self._read(sql)
        self._require_free(sql.database, reading)
        engine, mode = self._engine(sql.database), self._mode(sql)
        engine.lease({*reading.writes, *reading.reads})
        told = tuple(in_words(self._reverse(sql.database).tested(sql), sql)) if mode is Mode.REVERSAL else ()
        effect = engine.rehearse(sql, Mode.IMAGES if mode is Mode.REVERSAL else mode)
        if effect.is_nothing and not reading.defines:
            raise InputError(f"database {sql.database}: the statements change nothing as it is now")
        defined = reading.defines if mode is Mode.HOLD else frozenset[str]()
        shown = self._reverse(sql.database).outlined(effect) if mode is Mode.REVERSAL else effect
        self._kept.put(action, "plan", shown)
        plan = self._plan_of(sql, mode, effect, defined, told)
        if effect.evidence is not None and mode is Mode.IMAGES:
            self._planned[action] = plan, effect
            while len(self._planned) > _REMEMBERED:
                del self._planned[next(iter(self._planned))]
        return plan

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`. A plan that is remembered needs no more than a look whether it is still true."""
        sql = cast("Sql", operation)
        plan, planned = self._planned.get(action, (None, None))
        if plan is not None:
            self._require_free(sql.database, self._read(sql))
            if self._engine(sql.database).rehearse(sql, Mode.IMAGES, planned) is planned:
                return plan
        return self.plan(action, operation)

    def _plan_of(self, sql: Sql, mode: Mode, effect: Effect, defined: frozenset[str], told: tuple[str, ...]) -> Plan:
        is_less = effect.leaks or mode is Mode.REVERSAL
        guarantee = Guarantee.EQUIVALENT if is_less else Guarantee.EXACT
        accesses = list(accesses_of(effect, sql.database))
        known = {access.resource for access in accesses}
        resources = [f"{_ROOT}/{sql.database}/{name}" for name in sorted(defined)]
        accesses += [Access("define", resource) for resource in resources if resource not in known]
        return Plan(
            digest=_digest(sql, mode, effect, defined),
            changes=(*_changes(sql.database, effect, defined), *self._held_in_words(sql, mode), *told),
            request=Request(tuple(accesses), guarantee),
            footprint=_footprint(sql.database, effect, defined),
            guarantee=guarantee,
            kept={"images": "plan", "defined": sorted(defined)},
            is_left_open=mode is Mode.HOLD,
        )

    def _held_in_words(self, sql: Sql, mode: Mode) -> Iterator[str]:
        if mode is Mode.HOLD:
            seconds = self._connections[sql.database].hold_s
            yield f"hold the transaction, with its locks, until commit or undo, for {seconds:g} s at most"

    def _read(self, sql: Sql) -> Reading:
        if sql.database not in self._connections:
            known = ", ".join(self._connections) or "none"
            raise InputError(f"database {sql.database!r}: there is no such database; there are {known}")
        engine, mode = self._engine(sql.database), self._mode(sql)
        return reading_of_both(engine, sql) if mode is Mode.REVERSAL else engine.read(sql, mode)

    def _mode(self, sql: Sql) -> Mode:
        mode = Mode.REVERSAL if sql.undo else sql.mode or self._connections[sql.database].mode
        if mode is not Mode.REVERSAL and mode not in self._engine(sql.database).modes:
            raise InputError(f'database {sql.database}: its engine has no mode "{mode}"')
        return mode

    def _engine(self, name: str) -> Engine:
        if name not in self._connections:
            raise InputError(f"database {name!r}: was not opened")
        if name not in self._engines:
            settings = self._connections[name]
            password = self._key_of(settings.password_secret) if settings.password_secret else ""
            self._engines[name] = open_engine(name, settings, password)
        return self._engines[name]

    def _reverse(self, name: str) -> ReverseStatements:
        engine, settings = self._engine(name), self._connections[name]
        password = self._key_of(settings.password_secret) if settings.password_secret else ""
        return ReverseStatements(name, settings, password, engine)

    def _require_free(self, database: str, reading: Reading) -> None:
        """Look whether a held transaction has what an action is about."""
        wanted = {*reading.writes, *reading.reads, *reading.defines}
        for action, (name, tables) in self._held.items():
            if name == database and (self._connections[database].engine == "sqlite" or meet(wanted, tables)):
                raise InputError(f"database {database}: is held by action {action}; commit it or undo it first")

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Nothing is made ready: the transaction is."""
        sql = cast("Sql", operation)
        return {
            "database": sql.database,
            "operation": sql.model_dump(mode="json"),
            "mode": self._mode(sql),
            "plan": plan.digest,
            "defined": plan.kept["defined"],
            "images": "done",
            "guarantee": plan.guarantee,
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        sql, mode, engine = Sql.model_validate(started["operation"]), Mode(started["mode"]), self._engine_of(started)
        defined = frozenset(started["defined"])
        plan, planned = self._planned.pop(action, (None, None))
        if plan is not None and plan.digest != started["plan"]:
            planned = None

        def keep(effect: Effect, mark: Json) -> None:
            if effect is planned:
                self._kept.put_same(action, "done", "plan", effect)
            elif _digest(sql, mode, effect, defined) == started["plan"]:
                self._kept.put(action, "done", effect)
            else:
                raise InputError(
                    f"action {action}: what it is about has changed since it was planned; propose it again"
                )
            self._kept.put_mark(action, "done", mark)
            found.append(effect)

        found: list[Effect] = []
        if mode is Mode.HOLD:
            engine.hold(action, sql, keep)
            self._held[action] = (sql.database, _tables(started))
        else:
            engine.perform(sql, keep, planned)
        return self._receipt(action, started, found[-1])

    def _receipt(self, action: str, started: Json, effect: Effect | None = None) -> Json:
        effect = effect or self._kept.get(action, started["images"])
        footprint = _footprint(started["database"], effect, frozenset(started["defined"]))
        mark = self._kept.get_mark(action, started["images"]) or {}
        held = {"held_until": mark["until"]} if started["mode"] == Mode.HOLD else {}
        receipt = {**started, **held, "reads": sorted(footprint.reads), "writes": sorted(footprint.writes)}
        if started["mode"] == Mode.REVERSAL:
            shown = self._reverse(started["database"]).outlined(effect)
            return {**receipt, "kept_bytes": len(shown.to_text().encode())}
        return {**receipt, "kept_bytes": self._kept.num_bytes(action, started["images"])}

    def find_out(self, action: str, started: Json) -> Json | None:
        mark = self._kept.get_mark(action, "done")
        if mark is None:
            return None
        if started["mode"] == Mode.HOLD:
            held = self._held_state(action, started)
            return self._receipt(action, started) if held.is_open or held.is_committed else None
        effect = self._kept.get(action, "done")
        return self._receipt(action, started) if self._engine_of(started).was_committed(mark, effect) else None

    def observed(self, action: str, receipt: Json) -> Request:
        effect = self._kept.get(action, receipt["images"])
        accesses = list(accesses_of(effect, receipt["database"]))
        known = {access.resource for access in accesses}
        resources = [f"{_ROOT}/{receipt['database']}/{name}" for name in receipt["defined"]]
        accesses += [Access("define", resource) for resource in resources if resource not in known]
        return Request(tuple(accesses), Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        if self._kept.get_mark(action, started["images"]) is None:
            raise InputError(f"action {action}: had not come so far that it could have been done")
        return self._receipt(action, started)

    def put_back(self, action: str, started: Json) -> bool:
        """See `Manager`. A transaction that was not committed is rolled back by the database itself."""
        engine, mark = self._engine_of(started), self._kept.get_mark(action, "done")
        if mark is None:
            return True
        if started["mode"] == Mode.HOLD:
            engine.end_hold(action, commit=False)
            self._held.pop(action, None)
            return not self._held_state(action, started).is_committed
        effect = self._kept.get(action, "done")
        try:
            if not engine.was_committed(mark, effect):
                return True
            self._write(action, "back", effect.inverse(), engine, is_late=True)
        except (InDoubt, Contested, Rejected):
            return False
        return True

    def keep(self, action: str, receipt: Json) -> None:
        """See `Manager`: the rows are where they stay. Where statements take it back, their digests are enough now."""
        if receipt["mode"] == Mode.REVERSAL:
            effect = self._kept.get(action, receipt["images"])
            self._kept.put(action, receipt["images"], self._reverse(receipt["database"]).outlined(effect))
            self._kept.forget(action, receipt.get("past", ""))

    def kept_bytes(self, receipt: Json) -> int:
        return int(receipt["kept_bytes"])

    def discard(self, action: str) -> None:
        self._held.pop(action, None)
        self._planned.pop(action, None)
        self._kept.discard(action)

    # --- Holding ----------------------------------------------------------------------------------------------------

    def commit(self, action: str, receipt: Json) -> None:
        """See `Manager`: what is held is committed now."""
        if receipt["mode"] != Mode.HOLD:
            return
        with contextlib.suppress(InDoubt):  # it is looked at
            self._engine_of(receipt).end_hold(action, commit=True)
        self._held.pop(action, None)
        if not self._held_state(action, receipt).is_committed:
            raise InputError(f"action {action}: its transaction was rolled back before it was committed")

    def lapsed(self, action: str, receipt: Json) -> str:
        """See `Manager`: a held transaction that ended by itself, or whose time is over."""
        if receipt["mode"] != Mode.HOLD or self._settings_are_missing(receipt):
            return ""
        held = self._held_state(action, receipt)
        if held.is_open and time.time() < receipt["held_until"]:
            self._held[action] = (receipt["database"], _tables(receipt))
            return ""
        if held.is_committed:
            return ""
        return "its time was over" if held.is_open else "its transaction ended with the connection that held it"

    def _held_state(self, action: str, receipt: Json) -> Held:
        mark = self._kept.get_mark(action, "done") or {}
        return self._engine_of(receipt).held(action, mark, self._kept.get(action, "done"))

    def _settings_are_missing(self, receipt: Json) -> bool:
        return receipt["database"] not in self._connections

    # --- Taking back ------------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        """See `Manager`: what was held and is committed cannot be taken back."""
        if receipt["mode"] == Mode.HOLD and self._held_state(action, receipt).is_committed:
            return "its transaction is committed, and a held one leaves nothing to take it back by"
        return ""

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            if receipt["mode"] != Mode.HOLD:
                name = receipt["database"]
                contested = self._contested(action, receipt)
                names = [_row_name(name, table, key) for table, key in contested]
                found[action] = [each for each in names if not meet({f"{_ROOT}/{each}"}, seen)]
            seen |= set(receipt["writes"])
        return {action: names for action, names in found.items() if names}

    def _contested(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        """Rows that are not as an action left them, by table and key."""
        effect, name = self._kept.get(action, receipt["images"]), receipt["database"]
        if receipt["mode"] == Mode.REVERSAL:
            return self._reverse(name).contested(Sql.model_validate(receipt["operation"]), effect)
        return self._engine(name).contested(effect.inverse())

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        name = receipt["database"]
        told = {"database": name, "mode": receipt["mode"], "reads": receipt["reads"], "writes": receipt["writes"]}
        if receipt["mode"] == Mode.HOLD:
            return {**told, "images": ""}
        if receipt["mode"] == Mode.REVERSAL:
            chosen = {default, *choices.values()}
            if chosen & {Choice.SKIP, Choice.SAVE_ASIDE} and self._contested(action, receipt):
                raise InputError(f"action {action}: the undo is statements: force it, or leave it as it is")
            more = {"act": receipt["images"], "operation": receipt["operation"], "forced": Choice.FORCE in chosen}
            return {**told, **more, "images": f"undo-{secrets.token_hex(4)}"}
        effect = self._kept.get(action, receipt["images"]).inverse()
        contested = self._engine(name).contested(effect)
        for table, key in contested:
            row, choice = _row_name(name, table, key), choices.get(_row_name(name, table, key), default)
            if choice is Choice.SAVE_ASIDE:
                raise InputError(f"{row}: a row has no other place to be saved in; choose skip or force")
            if choice is Choice.FORCE and not key:
                raise InputError(f"{row}: cannot be forced: what it is made of has changed, or its rows have no key")
        images = f"undo-{secrets.token_hex(4)}"
        self._kept.put(action, images, _chosen(effect, contested, name, choices, default))
        return {**told, "images": images}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        engine = self._engine_of(undoing)
        if undoing["mode"] == Mode.HOLD:
            engine.end_hold(action, commit=False)
            self._held.pop(action, None)
            return dict(undoing)
        if undoing["mode"] == Mode.REVERSAL:
            self._reverse_by_statements(action, undoing, engine, is_late=is_late)
            return dict(undoing)
        effect = self._kept.get(action, undoing["images"])
        try:
            self._write(action, undoing["images"], effect, engine, is_late=is_late)
        except (Contested, Rejected) as error:
            raise NotUndone(str(error)) from None
        return dict(undoing)

    def _reverse_by_statements(self, action: str, undoing: Json, engine: Engine, *, is_late: bool) -> None:
        """Run the statements that take an action back, unless that was done before a crash."""
        name = undoing["images"]
        if is_late and self._was_written(action, name, engine):
            return
        sql, act = Sql.model_validate(undoing["operation"]), self._kept.get(action, undoing["act"])

        def keep(effect: Effect, mark: Json) -> None:
            self._kept.put(action, name, effect)
            self._kept.put_mark(action, name, mark)

        try:
            self._reverse(undoing["database"]).use(sql, act, keep, is_forced=undoing["forced"])
        except InDoubt as error:
            if not self._was_written(action, name, engine):
                raise HostError(f"{error}. Mend: try again when the database answers") from None

    def _was_written(self, action: str, name: str, engine: Engine) -> bool:
        mark = self._kept.get_mark(action, name)
        return mark is not None and engine.was_committed(mark, self._kept.get(action, name))

    def plan_redo(self, action: str, undone: Json) -> Json:
        if undone["mode"] == Mode.HOLD:
            raise InputError(f"action {action}: a transaction that was rolled back is not done again; propose it anew")
        effect = self._kept.get(action, undone["images"]).inverse()
        name = undone["database"]
        if contested := self._engine(name).contested(effect):
            names = ", ".join(_row_name(name, table, key) for table, key in contested)
            raise InputError(f"action {action}: {names} changed since it was undone")
        images = f"redo-{secrets.token_hex(4)}"
        self._kept.put(action, images, effect)
        return {"database": name, "images": images, "past": undone["images"]}

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """See `Manager`: as it was the first time."""
        return self.observed(action, receipt)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        effect = self._kept.get(action, redoing["images"])
        try:
            self._write(action, redoing["images"], effect, self._engine_of(redoing), is_late=is_late)
        except (Contested, Rejected) as error:
            raise InDoubt(f"it was not done again: {error}") from None
        return self._receipt(action, {**receipt, "images": redoing["images"], "past": redoing["past"]})

    def _write(self, action: str, name: str, effect: Effect, engine: Engine, *, is_late: bool) -> None:
        """Write an effect under a mark, unless that was done before a crash."""
        mark = self._kept.get_mark(action, name) if is_late else None
        if mark is not None and engine.was_committed(mark, effect):
            return
        if effect.is_nothing:
            return
        try:
            engine.write(effect, lambda _, mark: self._kept.put_mark(action, name, mark))
        except InDoubt as error:
            mark = self._kept.get_mark(action, name)
            if mark is None or not engine.was_committed(mark, effect):
                raise HostError(f"{error}. Mend: try again when the database answers") from None

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: the rows that went and came, and of what is held until when, and who waits for it."""
        if receipt is None:
            return []
        effect = self._kept.get(action, receipt["images"] or "done")
        lines = [line for table in effect.tables for line in _row_lines(table.table, table.removed, table.added)]
        lines += [f"+ {each.statement}" for each in effect.created]
        if is_done and receipt["mode"] == Mode.HOLD:
            held = self._held_state(action, receipt)
            until = datetime.fromtimestamp(receipt["held_until"], UTC).isoformat(timespec="seconds")
            lines += (
                [f"held until {until}", *(f"waits for it: {each}" for each in held.waiting)] if held.is_open else []
            )
        return lines

    def _engine_of(self, told: Json) -> Engine:
        return self._engine(str(told["database"]))


def _asked(database: str, reading: Reading) -> Iterator[Access]:
    for table, verbs in sorted(reading.writes.items()):
        for verb in sorted(verbs):
            yield Access(verb, f"{_ROOT}/{database}/{table}")
    for name in sorted(reading.defines):
        yield Access("define", f"{_ROOT}/{database}/{name}")
    for table in sorted({table_of(key) for key in reading.reads}):
        yield Access("read", f"{_ROOT}/{database}/{table}")


def _digest(sql: Sql, mode: Mode, effect: Effect, defined: frozenset[str]) -> str:
    """Of the statements and of what they do."""
    told = [sql.model_dump(mode="json"), mode, sorted(defined), effect.digest()]
    return hashlib.sha256(canonical_json(told)).hexdigest()


def _changes(database: str, effect: Effect, defined: frozenset[str]) -> Iterator[str]:
    for table, verb, rows in effect.row_counts():
        yield f"{verb} {rows} row{'' if rows == 1 else 's'} of {database}/{table}"
    for each in effect.created:
        yield f"define {each.kind} {database}/{each.name}"
    for name in sorted(defined - {each.name for each in effect.created}):
        yield f"define {database}/{name}"
    yield from effect.leaks


def _footprint(database: str, effect: Effect, defined: frozenset[str]) -> Footprint:
    names = [*(each.name for each in (*effect.created, *effect.dropped)), *defined]
    writes = {key for table in effect.tables for key in keys_of(table)} | {each[0] for each in effect.counted}
    writes |= set(names)
    return Footprint(
        frozenset(f"{_ROOT}/{database}/{key}" for key in effect.reads),
        frozenset(f"{_ROOT}/{database}/{key}" for key in writes),
    )


def _tables(receipt: Json) -> frozenset[str]:
    """The tables that an action writes, below its database."""
    return frozenset("/".join(key.split("/")[2:4]) for key in receipt["writes"])


def _row_name(database: str, table: str, key: str) -> str:
    return f"{database}/{table}/{as_name(key)}" if key else f"{database}/{table}"


def _chosen(
    effect: Effect,
    contested: Mapping[tuple[str, str], Image | None],
    database: str,
    choices: Mapping[str, Choice],
    default: Choice,
) -> Effect:
    """An effect, with what is said of rows that others have changed."""
    if not contested:
        return effect
    tables = []
    for each in effect.tables:
        own = {key: now for (table, key), now in contested.items() if table == each.table}
        said = {key: choices.get(_row_name(database, each.table, key), default) for key in own}
        skipped = {key for key, choice in said.items() if choice is Choice.SKIP}
        forced = {key: own[key] for key, choice in said.items() if choice is Choice.FORCE}
        if "" in skipped:
            continue
        tables.append(each.without(skipped).over(forced))
    skipped_names = {
        table for (table, key) in contested if choices.get(_row_name(database, table, key), default) is Choice.SKIP
    }
    return replace(
        effect,
        tables=tuple(tables),
        created=tuple(each for each in effect.created if each.name not in skipped_names),
        dropped=tuple(each for each in effect.dropped if each.name not in skipped_names),
    )


def _row_lines(table: str, removed: Sequence[Image], added: Sequence[Image]) -> Iterator[str]:
    if len(removed) + len(added) > _SHOWN_ROWS:
        yield f"{table}: {len(removed)} rows go, {len(added)} rows come; too many to show"
        return
    for sign, images in (("-", removed), ("+", added)):
        for key, data in images:
            if is_digest(data):
                yield f"{sign} {table}: {key or 'a row'}; what it holds is not kept"
                continue
            yield f"{sign} {table}: {data if isinstance(data, str) else canonical_json(data).decode()}"
