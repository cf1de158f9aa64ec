"""Actions on databases: statements or commands that are planned by running and rolling back, done, and taken back.

Theory of operation. An engine runs the statements of an action in one transaction and tells which rows went and which
came (an `Effect`). What is kept of it, how it is told after a crash whether it was done, and how it is taken back, is
the business of a mode (`modes`): the manager only finds the mode of an action, which its receipt names.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import canonical_json
from autoclave.runtime.databases.effects import Effect, TableEffect, as_name, keys_of, row_name
from autoclave.runtime.databases.engine import Databases, Reading
from autoclave.runtime.databases.modes import ImagesMode, KeptRows, TransactionMode
from autoclave.runtime.databases.operations import Commands, Operation, Sql
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.databases.tables import table_of
from autoclave.runtime.footprints import Footprint, meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, Json, Manager, Plan, UndoneWith
from autoclave.runtime.policy.request import Access, Request

_IGNORED = "warning: the supplied undo is ignored: what was changed is restored exactly without it"


class DatabaseManager(Manager):
    """Actions on the databases of `connections`, by the names that statements use for them.

    `state` is a folder that nobody else touches: rows are kept in it. `key_of` gives the password that a secret holds.
    A database is opened when it is first needed. `lives_on`: whether this process goes on after an action, so that it
    can keep a transaction open.
    """

    operations: Mapping[str, type[Config]] = {"sql": Sql, "commands": Commands}

    def __init__(
        self,
        connections: Mapping[str, DatabaseConnection],
        state: Path,
        key_of: Callable[[str], str],
        *,
        lives_on: bool = True,
    ) -> None:
        self._lives_on = lives_on
        self._databases, self._kept = Databases(connections, key_of), KeptRows(state)
        self._transactions = TransactionMode(self._databases, self._kept)
        images = ImagesMode(self._databases, self._kept)
        self._modes: Mapping[Mode, ImagesMode] = {Mode.IMAGES: images, Mode.TRANSACTION: self._transactions}

    def close(self) -> None:
        """Let go of all databases. Transactions that cannot survive that are rolled back."""
        self._databases.close()

    def told(self) -> str:
        lines: list[str] = []
        for name in self._databases:
            engine = self._databases.engine(name)
            lines += [f"database {name} ({engine.settings.engine})", *engine.told()]
        return "\n".join(lines)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning runs the statements, so what they say they do must be permitted before."""
        sql = cast("Operation", operation)
        return Request(tuple(accesses_of_reading(sql.database, self._read(sql))))

    def plan(self, action: str, operation: Config) -> Plan:
        sql = cast("Operation", operation)
        name, reading, mode = sql.database, self._read(sql), self._mode_of(sql)
        self._transactions.require_free(name, reading)
        engine, defined = self._databases.engine(name), reading.defines
        engine.lease({*reading.writes, *reading.reads})
        effect = engine.rehearse(sql, mode)
        if effect.is_nothing and not defined:
            raise InputError(f"database {name}: the statements change nothing as it is now")
        guarantee = Guarantee.EQUIVALENT if effect.side_effects else Guarantee.EXACT
        return Plan(
            digest=digest(sql, mode, effect, defined),
            changes=(
                *changes(name, effect, defined),
                *self._modes[mode].told(name),
                *((_IGNORED,) if isinstance(sql, Sql) and sql.undo else ()),
            ),
            request=Request(accesses(name, effect, defined), guarantee),
            footprint=footprint(name, effect, defined),
            guarantee=guarantee,
            kept={"defined": sorted(defined)},
            is_left_open=self._modes[mode].is_left_open,
        )

    def _read(self, sql: Operation) -> Reading:
        engine = self._databases.engine(sql.database)
        if not isinstance(sql, engine.operation):
            raise InputError(f"database {sql.database} ({engine.settings.engine}): does not take {sql.do!r}")
        return engine.read(sql, self._mode_of(sql))

    def _mode_of(self, sql: Operation) -> Mode:
        if isinstance(sql, Commands):
            return Mode.IMAGES
        mode = sql.mode or self._databases.settings(sql.database).mode
        if mode is Mode.IMAGES or self._lives_on:
            return mode
        raise InputError(
            f'database {sql.database}: mode "transaction": the open transaction would be rolled back when this '
            'command ends. Fix: mode "images" commits and can be undone; or keep the transaction open from Python'
        )

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Nothing is made ready: the transaction is."""
        sql = cast("Operation", operation)
        return {
            "database": sql.database,
            "operation": sql.model_dump(mode="json"),
            "mode": self._mode_of(sql),
            "plan": plan.digest,
            "defined": plan.kept["defined"],
            "images": "done",
            "forwards": True,
            "guarantee": plan.guarantee,
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        operation, name = started["operation"], Mode(started["mode"])
        sql = cast("Operation", self.operations[operation["do"]].model_validate(operation))
        defined = frozenset(started["defined"])

        def keep(effect: Effect, mark: Json) -> None:
            if digest(sql, name, effect, defined) != started["plan"]:
                raise InputError(f"action {action}: its resource has changed since it was planned; propose it again")
            self._kept.put(action, "done", effect, mark)

        self._mode(started).execute(action, sql, started, keep)
        return self._receipt(action, started)

    def _mode(self, told: Json) -> ImagesMode:
        return self._modes[Mode(told["mode"])]

    def _receipt(self, action: str, started: Json) -> Json:
        found = footprint(started["database"], self._kept.effect(action, started), frozenset(started["defined"]))
        told = {"kept_bytes": self._kept.num_bytes(action, started["images"]), "reads": sorted(found.reads)}
        return {**started, **told, "writes": sorted(found.writes)}

    def find_out(self, action: str, started: Json) -> Json | None:
        mark = self._kept.get_mark(action, "done")
        if mark is None or not self._mode(started).was_done(action, started, mark):
            return None
        return self._receipt(action, started)

    def answers(self, action: str, begun: Json) -> bool:
        """See `Manager`: connecting is limited in time."""
        return True

    def observed(self, action: str, receipt: Json) -> Request:
        effect = self._kept.effect(action, receipt)
        found = accesses(receipt["database"], effect, frozenset(receipt["defined"]))
        return Request(found, Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        if self._kept.get_mark(action, started["images"]) is None:
            raise InputError(f"action {action}: had not come so far that it could have been done")
        return self._receipt(action, started)

    def accept_undo(self, action: str, undoing: Json) -> Json:
        return dict(undoing)

    def put_back(self, action: str, started: Json) -> bool:
        return self._mode(started).put_back(action, started)

    def commit(self, action: str, receipt: Json) -> None:
        self._mode(receipt).commit(action, receipt)

    def lapsed(self, action: str, receipt: Json) -> str:
        return self._mode(receipt).lapsed(action, receipt)

    def discard(self, action: str) -> None:
        self._transactions.forget(action)
        self._kept.discard(action)

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            places = self._mode(receipt).conflicting(action, receipt)
            names = [row_name(receipt["database"], *place) for place in places]
            found[action] = [each for each in names if not meet({f"databases/{each}"}, seen)]
            seen |= set(receipt["writes"])
        return {action: names for action, names in found.items() if names}

    def plan_undo(
        self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice, undone_with: UndoneWith
    ) -> Json:
        told = {name: receipt[name] for name in ("database", "mode", "reads", "writes")}
        return {**told, **self._mode(receipt).plan_undo(action, receipt, choices, default)}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> Json:
        self._mode(undoing).undo(action, undoing, is_late=is_late)
        return self.accept_undo(action, undoing)

    def plan_redo(self, action: str, undone: Json) -> Json:
        return self._mode(undone).plan_redo(action, undone)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        self._mode(receipt).redo(action, redoing, is_late=is_late)
        return self._receipt(action, {**receipt, "images": redoing["images"], "forwards": redoing["forwards"]})

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        if receipt is None or "images" not in receipt:
            return []
        effect = self._kept.effect(action, receipt)
        return [line for table in effect.tables for line in row_lines(table)]


_ROOT, _SHOWN_ROWS = "databases", 200


def accesses_of_reading(database: str, reading: Reading) -> Iterator[Access]:
    """Return what statements ask for before they are run."""
    for table, verbs in sorted(reading.writes.items()):
        for verb in sorted(verbs):
            yield Access(verb, f"{_ROOT}/{database}/{table}")
    for name in sorted(reading.defines):
        yield Access("define", f"{_ROOT}/{database}/{name}")
    for table in sorted({table_of(key) for key in reading.reads}):
        yield Access("read", f"{_ROOT}/{database}/{table}")


def accesses(database: str, effect: Effect, defined: frozenset[str]) -> tuple[Access, ...]:
    """Return what statements did, or would do: rows by table and verb, tables that were read, and definitions."""
    found = [Access(verb, f"{_ROOT}/{database}/{table}", rows=rows) for table, verb, rows in effect.row_counts()]
    found += [Access("read", f"{_ROOT}/{database}/{table}") for table in sorted(set(map(table_of, effect.reads)))]
    return (*found, *(Access("define", f"{_ROOT}/{database}/{name}") for name in sorted(defined)))


def digest(sql: Operation, mode: Mode, effect: Effect, defined: frozenset[str]) -> str:
    told = [sql.model_dump(mode="json"), mode, sorted(defined), effect.digest()]
    return hashlib.sha256(canonical_json(told)).hexdigest()


def changes(database: str, effect: Effect, defined: frozenset[str]) -> Iterator[str]:
    """Return what statements would do, a line each."""
    are_keys = any(each.is_of_keys for each in effect.tables)
    for table, verb, rows in effect.row_counts():
        yield f"{verb} {'key' if are_keys else '1 row of' if rows == 1 else f'{rows} rows of'} {database}/{table}"
    for name in sorted(defined):
        yield f"define {database}/{name}"
    yield from effect.side_effects


def footprint(database: str, effect: Effect, defined: frozenset[str]) -> Footprint:
    """Return what it depends on, and what it changes: rows, or tables."""
    writes = {key for table in effect.tables for key in keys_of(table)} | {each[0] for each in effect.counted}
    writes |= defined
    return Footprint(
        frozenset(f"{_ROOT}/{database}/{key}" for key in effect.reads),
        frozenset(f"{_ROOT}/{database}/{key}" for key in writes),
    )


def row_lines(effect: TableEffect) -> Iterator[str]:
    """The columns of a table, and its rows that went and came, a line each."""
    table, removed, added = effect.table, effect.removed, effect.added
    if len(removed) + len(added) > _SHOWN_ROWS:
        yield f"{table}: {len(removed)} rows go, {len(added)} rows come; too many to show"
        return
    if not effect.is_of_keys:
        yield f"{table}: {', '.join(effect.columns)}"
    for sign, images in (("-", removed), ("+", added)):
        for key, data in images:
            if effect.is_of_keys:
                yield f"{sign} {table}/{as_name(key)}"
                continue
            yield f"{sign} {table}: {data if isinstance(data, str) else canonical_json(data).decode()}"
