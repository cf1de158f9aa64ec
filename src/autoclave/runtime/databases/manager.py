"""Actions on databases: statements that are planned by running and rolling back, done, and taken back.

Theory of operation. An engine runs the statements of an action in one transaction and tells which rows went and which
came (an `Effect`). What is kept of it, how it is told after a crash whether it was done, and how it is taken back, is
the business of a mode (`modes`): the manager only finds the mode of an action, which its receipt names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Reading, Rejected, RowConflict, open_engine
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.modes.base import Rehearsed
from autoclave.runtime.databases.modes.images import ImagesMode, NotWritten
from autoclave.runtime.databases.modes.transaction import TransactionMode
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.plans import accesses, accesses_of_reading, changes, digest, footprint
from autoclave.runtime.databases.rows import row_lines, row_names
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, Json, Manager, NotRedone, Plan, UndoneWith
from autoclave.runtime.policy.request import Request


class DatabaseManager(Manager):
    """Actions on the databases of `connections`, by the names that statements use for them.

    `state` is a folder that nobody else touches: rows are kept in it. `key_of` gives the password that a secret holds.
    A database is opened when it is first needed. `lives_on`: whether this process goes on after an action, so that it
    can keep a transaction open.
    """

    operations: Mapping[str, type[Config]] = {"sql": Sql}

    def __init__(
        self,
        connections: Mapping[str, DatabaseConnection],
        state: Path,
        key_of: Callable[[str], str],
        *,
        lives_on: bool = True,
    ) -> None:
        self._lives_on = lives_on
        self._databases, self._kept = Databases(connections, key_of, open_engine), KeptRows(state)
        self._transactions = TransactionMode(self._databases, self._kept)
        self._images = ImagesMode(self._databases, self._kept)
        self._modes: Mapping[Mode, ImagesMode | TransactionMode] = {
            Mode.IMAGES: self._images,
            Mode.TRANSACTION: self._transactions,
        }

    def close(self) -> None:
        """Let go of all databases. Transactions that cannot survive that are rolled back."""
        self._databases.close()

    # --- Planning ---------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """See `Manager`: what the tables are made of."""
        lines: list[str] = []
        for name in self._databases:
            schema = self._databases.engine(name).schema()
            lines += [f"database {name} ({self._databases.settings(name).engine})", *schema.told()]
        return "\n".join(lines)

    def asks(self, operation: Config) -> Request:
        """See `Manager`: planning runs the statements, so what they say they do must be permitted before."""
        sql = cast("Sql", operation)
        return Request(tuple(accesses_of_reading(sql.database, self._read(sql))))

    def plan(self, action: str, operation: Config) -> Plan:
        sql = cast("Sql", operation)
        reading, name = self._read(sql), self._mode_of(sql)
        self._transactions.require_free(sql.database, reading)
        self._databases.engine(sql.database).lease({*reading.writes, *reading.reads})
        mode = self._modes[name]
        rehearsed = mode.rehearse(sql, name, reading)
        if rehearsed.effect.is_nothing and not reading.defines:
            raise InputError(f"database {sql.database}: the statements change nothing as it is now")
        return _plan_of(sql, name, rehearsed, is_left_open=mode.is_left_open)

    def _read(self, sql: Sql) -> Reading:
        mode = self._mode_of(sql)
        return self._modes[mode].read(sql, mode)

    def _mode_of(self, sql: Sql) -> Mode:
        mode = sql.mode or self._databases.settings(sql.database).mode
        if mode not in self._databases.engine(sql.database).modes:
            raise InputError(f'database {sql.database}: its engine has no mode "{mode}"')
        if mode is Mode.TRANSACTION and not self._lives_on and not self._databases.engine(sql.database).is_durable():
            raise InputError(
                f'database {sql.database}: mode "transaction": the open transaction would be rolled back when this '
                'command ends. Fix: mode "images" commits and can be undone; or keep the transaction open from Python'
            )
        return mode

    # --- Doing ------------------------------------------------------------------------------------------------------

    def prepare(self, action: str, operation: Config, plan: Plan) -> Json:
        """See `Manager`. Nothing is made ready: the transaction is."""
        sql = cast("Sql", operation)
        return {
            "database": sql.database,
            "operation": sql.model_dump(mode="json"),
            "mode": self._mode_of(sql),
            "plan": plan.digest,
            "defined": plan.kept["defined"],
            "uses_undo": plan.kept["uses_undo"],
            "images": "done",
            "guarantee": plan.guarantee,
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        sql, name = Sql.model_validate(started["operation"]), Mode(started["mode"])
        defined = frozenset(started["defined"])

        def keep(effect: Effect, mark: Json) -> None:
            if digest(sql, name, effect, defined) != started["plan"]:
                raise InputError(
                    f"action {action}: what it is about has changed since it was planned; propose it again"
                )
            self._kept.put(action, "done", effect, mark)

        self._mode(started).execute(action, sql, started, keep)
        return self._receipt(action, started)

    def _mode(self, told: Json) -> ImagesMode | TransactionMode:
        return self._modes[Mode(told["mode"])]

    def _receipt(self, action: str, started: Json) -> Json:
        effect = self._kept.get(action, started["images"])
        found = footprint(started["database"], effect, frozenset(started["defined"]))
        more = self._mode(started).in_receipt(action, started, effect)
        return {**started, **more, "reads": sorted(found.reads), "writes": sorted(found.writes)}

    def find_out(self, action: str, started: Json) -> Json | None:
        mark = self._kept.get_mark(action, "done")
        if mark is None or not self._mode(started).was_done(action, started, mark):
            return None
        return self._receipt(action, started)

    def answers(self, action: str, begun: Json) -> bool:
        """See `Manager`: connecting is limited in time."""
        return True

    def observed(self, action: str, receipt: Json) -> Request:
        effect = self._kept.get(action, receipt["images"])
        found = accesses(receipt["database"], effect, frozenset(receipt["defined"]))
        return Request(found, Guarantee(receipt["guarantee"]))

    def accept(self, action: str, started: Json) -> Json:
        if self._kept.get_mark(action, started["images"]) is None:
            raise InputError(f"action {action}: had not come so far that it could have been done")
        return self._receipt(action, started)

    def put_back(self, action: str, started: Json) -> bool:
        return self._mode(started).put_back(action, started)

    def commit(self, action: str, receipt: Json) -> None:
        self._mode(receipt).commit(action, receipt)

    def lapsed(self, action: str, receipt: Json) -> str:
        return self._mode(receipt).lapsed(action, receipt)

    def discard(self, action: str) -> None:
        self._transactions.forget(action)
        self._kept.discard(action)

    # --- Taking back ------------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        return self._mode(receipt).obstacle(action, receipt)

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            names = row_names(receipt["database"], self._mode(receipt).conflicting(action, receipt))
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
        return dict(undoing)

    def plan_redo(self, action: str, undone: Json) -> Json:
        return {"database": undone["database"], "images": self._mode(undone).plan_redo(action, undone)}

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        images, database = redoing["images"], redoing["database"]
        effect = self._kept.get(action, images)
        try:
            self._images.write(action, images, effect, database, is_late=is_late)
        except (RowConflict, Rejected, NotWritten) as error:
            raise NotRedone(f"{error}") from None
        return self._receipt(action, {**receipt, "images": images})

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: the rows that went and came, and what else the mode tells."""
        if receipt is None:
            return []
        effect = self._kept.get(action, receipt["images"] or "done")
        lines = [line for table in effect.tables for line in row_lines(table.table, table.removed, table.added)]
        return [*lines, *(self._mode(receipt).differences(action, receipt) if is_done else ())]


def _plan_of(sql: Sql, mode: Mode, rehearsed: Rehearsed, *, is_left_open: bool) -> Plan:
    database, effect, defined = sql.database, rehearsed.effect, rehearsed.defined
    return Plan(
        digest=digest(sql, mode, effect, defined),
        changes=(*changes(database, effect, defined), *rehearsed.told),
        request=Request(accesses(database, effect, defined), rehearsed.guarantee),
        footprint=footprint(database, effect, defined),
        guarantee=rehearsed.guarantee,
        kept={"defined": sorted(defined), "uses_undo": rehearsed.uses_undo},
        is_left_open=is_left_open,
    )
