"""Actions on databases: statements that are planned by running and rolling back, done, and taken back.

Theory of operation. An engine runs the statements of an action in one transaction and tells which rows went and which
came (an `Effect`). What is kept of it, how it is told after a crash whether it was done, and how it is taken back, is
the business of a mode (`modes`): the manager only finds the mode of an action, which its receipt names.

Rows are read and written down when an action is planned. When it is done soon after, in the same process, the engine
tells by less that exactly this came about (`Effect.evidence`), and what was written down gets a second name.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Contested, Reading, Rejected
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.modes.base import ActionMode, Rehearsed
from autoclave.runtime.databases.modes.hold import HoldMode
from autoclave.runtime.databases.modes.images import ImagesMode
from autoclave.runtime.databases.modes.reversal import ReversalMode
from autoclave.runtime.databases.opened import Databases
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.plans import accesses, accesses_of_reading, changes, digest, footprint
from autoclave.runtime.databases.rows import row_lines, row_names
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.footprints import meet
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, Json, Plan, UndoneWith
from autoclave.runtime.policy.request import Request

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
        self._databases, self._kept = Databases(connections, key_of), KeptRows(state)
        self._holding = HoldMode(self._databases, self._kept)
        images = ImagesMode(self._databases, self._kept)
        self._modes: Mapping[Mode, ActionMode] = {
            Mode.IMAGES: images,
            Mode.CLONE: images,
            Mode.HOLD: self._holding,
            Mode.REVERSAL: ReversalMode(self._databases, self._kept),
        }
        self._planned: dict[str, tuple[Plan, Effect]] = {}

    def close(self) -> None:
        """Let go of all databases. What is held, and cannot survive that, is rolled back."""
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
        self._holding.require_free(sql.database, reading)
        self._databases.engine(sql.database).lease({*reading.writes, *reading.reads})
        mode = self._modes[name]
        rehearsed = mode.rehearse(sql, name, reading)
        if rehearsed.effect.is_nothing and not reading.defines:
            raise InputError(f"database {sql.database}: the statements change nothing as it is now")
        self._kept.put(action, "plan", rehearsed.shown)
        plan = _plan_of(sql, name, rehearsed, is_left_open=mode.is_left_open)
        if rehearsed.has_evidence:
            self._planned[action] = plan, rehearsed.effect
            while len(self._planned) > _REMEMBERED:
                del self._planned[next(iter(self._planned))]
        return plan

    def plan_again(self, action: str, operation: Config, kept: Json) -> Plan:
        """See `Manager`. A plan that is remembered needs no more than a look whether it is still true."""
        sql = cast("Sql", operation)
        plan, planned = self._planned.get(action, (None, None))
        if plan is not None:
            self._holding.require_free(sql.database, self._read(sql))
            if self._databases.engine(sql.database).rehearse(sql, self._mode_of(sql), planned) is planned:
                return plan
        return self.plan(action, operation)

    def _read(self, sql: Sql) -> Reading:
        mode = self._mode_of(sql)
        return self._modes[mode].read(sql, mode)

    def _mode_of(self, sql: Sql) -> Mode:
        mode = Mode.REVERSAL if sql.undo else sql.mode or self._databases.settings(sql.database).mode
        if mode is not Mode.REVERSAL and mode not in self._databases.engine(sql.database).modes:
            raise InputError(f'database {sql.database}: its engine has no mode "{mode}"')
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
            "images": "done",
            "guarantee": plan.guarantee,
            "reads": sorted(plan.footprint.reads),
            "writes": sorted(plan.footprint.writes),
        }

    def execute(self, action: str, started: Json) -> Json:
        sql, name = Sql.model_validate(started["operation"]), Mode(started["mode"])
        defined = frozenset(started["defined"])
        plan, planned = self._planned.pop(action, (None, None))
        if plan is not None and plan.digest != started["plan"]:
            planned = None

        def keep(effect: Effect, mark: Json) -> None:
            if effect is planned:
                self._kept.put_same(action, "done", "plan", effect)
            elif digest(sql, name, effect, defined) == started["plan"]:
                self._kept.put(action, "done", effect)
            else:
                raise InputError(
                    f"action {action}: what it is about has changed since it was planned; propose it again"
                )
            self._kept.put_mark(action, "done", mark)

        self._mode(started).execute(action, sql, started, keep, planned)
        return self._receipt(action, started)

    def _mode(self, told: Json) -> ActionMode:
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

    def keep(self, action: str, receipt: Json) -> None:
        self._mode(receipt).keep(action, receipt)

    def kept_bytes(self, receipt: Json) -> int:
        return int(receipt["kept_bytes"])

    def commit(self, action: str, receipt: Json) -> None:
        self._mode(receipt).commit(action, receipt)

    def lapsed(self, action: str, receipt: Json) -> str:
        return self._mode(receipt).lapsed(action, receipt)

    def discard(self, action: str) -> None:
        self._holding.forget(action)
        self._planned.pop(action, None)
        self._kept.discard(action)

    # --- Taking back ------------------------------------------------------------------------------------------------

    def obstacle(self, action: str, receipt: Json) -> str:
        return self._mode(receipt).obstacle(action, receipt)

    def conflicts(self, done: Sequence[tuple[str, Json]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for action, receipt in done:
            names = row_names(receipt["database"], self._mode(receipt).contested(action, receipt))
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
        images = f"redo-{secrets.token_hex(4)}"
        self._mode(undone).plan_redo(action, undone, images)
        return {"database": undone["database"], "images": images, "past": undone["images"]}

    def request_of_redo(self, action: str, receipt: Json, redoing: Json) -> Request:
        """See `Manager`: as it was the first time."""
        return self.observed(action, receipt)

    def redo(self, action: str, receipt: Json, redoing: Json, *, is_late: bool) -> Json:
        images, database = redoing["images"], redoing["database"]
        effect = self._kept.get(action, images)
        try:
            self._mode(receipt).write(action, images, effect, database, is_late=is_late)
        except (Contested, Rejected) as error:
            raise InDoubt(f"it was not done again: {error}") from None
        return self._receipt(action, {**receipt, "images": images, "past": redoing["past"]})

    def difference(self, action: str, operation: Config, receipt: Json | None, *, is_done: bool) -> list[str]:
        """See `Manager`: the rows that went and came, and what else the mode tells."""
        if receipt is None:
            return []
        effect = self._kept.get(action, receipt["images"] or "done")
        lines = [line for table in effect.tables for line in row_lines(table.table, table.removed, table.added)]
        lines += [f"+ {each.statement}" for each in effect.created]
        return [*lines, *(self._mode(receipt).differences(action, receipt) if is_done else ())]


def _plan_of(sql: Sql, mode: Mode, rehearsed: Rehearsed, *, is_left_open: bool) -> Plan:
    database, effect, defined = sql.database, rehearsed.effect, rehearsed.defined
    return Plan(
        digest=digest(sql, mode, effect, defined),
        changes=(*changes(database, effect, defined), *rehearsed.told),
        request=Request(accesses(database, effect, defined), rehearsed.guarantee),
        footprint=footprint(database, effect, defined),
        guarantee=rehearsed.guarantee,
        kept={"images": "plan", "defined": sorted(defined)},
        is_left_open=is_left_open,
    )
