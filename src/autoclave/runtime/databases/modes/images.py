"""It is committed at once, and undone by writing the rows that were there before.

Before the commit, the effect and a mark are durable. A session that finds the action unfinished asks the engine whether
the transaction of that mark was committed: so a crash leaves it done or not done, and known. To undo it is to write the
inverse of its effect, in one transaction, under a mark of its own; to redo it, the inverse of that.

An undo that an action supplies never replaces these rows. When the action is planned, its statements and those of its
undo run one after the other in a transaction that is rolled back; where that leaves nothing changed, the undo runs the
supplied statements first, and keeps what they did only if it is exactly the inverse of the effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from secrets import token_hex

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.kept import inverse_of
from autoclave.runtime.databases.modes.base import ActionMode, Rehearsed
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.rows import chosen, row_names
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, InDoubt, NotUndone

_PROVED = (
    "undo by the supplied statements, which restore exactly the rows as they are; the kept rows are written back "
    "wherever these statements do anything else"
)


class NotWritten(HostError):
    """The database is busy or away, and it is certain that nothing was written."""


class _Differs(InputError):
    """Supplied statements do something else than the inverse of the effect."""


class ImagesMode(ActionMode):
    """By rows before and after."""

    def read(self, sql: Sql, mode: Mode) -> Reading:
        """See `ActionMode`. The statements of a supplied undo run when it is planned, so they must be permitted too."""
        engine = self._databases.engine(sql.database)
        reading = engine.read(sql, mode)
        try:
            return engine.read(sql.then_undone(), mode) if sql.undo else reading
        except InputError:
            return reading  # an undo that cannot be read is never run

    def rehearse(self, sql: Sql, mode: Mode, reading: Reading) -> Rehearsed:
        effect = self._databases.engine(sql.database).rehearse(sql, mode)
        guarantee = Guarantee.EQUIVALENT if effect.side_effects else Guarantee.EXACT
        doubt = self._doubt(sql, mode, effect) if sql.undo else ""
        told = (
            f"warning: the supplied undo is ignored, and the kept rows are written back: {doubt}" if doubt else _PROVED
        )
        return Rehearsed(
            effect,
            guarantee,
            (told,) if sql.undo else (),
            uses_undo=bool(sql.undo) and not doubt,
        )

    def _doubt(self, sql: Sql, mode: Mode, effect: Effect) -> str:
        """Why the supplied undo is not used; empty if it restores exactly what the statements change."""
        engine, both = self._databases.engine(sql.database), sql.then_undone()
        try:
            engine.read(both, mode)  # `read` took an undo that cannot be read for none, so it was not permitted
            left = engine.rehearse(both, mode)
        except InputError as error:
            return f"{error}"
        if changed := sorted({each.table for each in left.tables if each.removed or each.added}):
            return f"it does not restore {', '.join(changed)}"
        if not left.is_nothing or left.counters or left.side_effects or effect.side_effects:
            return "it does not restore definitions, counters or what triggers do"
        return ""

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
                self.write(action, "back", effect, started["database"], is_late=True)
        except (InDoubt, RowConflict, Rejected):
            return False
        return True

    def commit(self, action: str, receipt: Json) -> None:
        """Nothing is left open."""

    def conflicting(self, action: str, receipt: Json) -> Collection[tuple[str, str]]:
        effect = self._kept.get(action, receipt["images"]).inverse()
        return self._databases.engine(receipt["database"]).conflicting(effect)

    def plan_undo(self, action: str, receipt: Json, choices: Mapping[str, Choice], default: Choice) -> Json:
        name = receipt["database"]
        is_chosen = bool(choices) or default is not Choice.REFUSE
        effect = self._kept.get(action, receipt["images"]).inverse()
        conflicting = self._databases.engine(name).conflicting(effect) if is_chosen else {}
        images = inverse_of(receipt["images"], "undo")
        if conflicting:
            images = f"undo-{token_hex(4)}"
            self._kept.put(action, images, chosen(effect, conflicting, name, choices, default))
        uses_undo = receipt.get("uses_undo") and not conflicting
        return {"images": images, **({"statements": receipt["operation"]["undo"]} if uses_undo else {})}

    def undo(self, action: str, undoing: Json, *, is_late: bool) -> None:
        images, database = undoing["images"], undoing["database"]
        effect = self._kept.get(action, images)
        if "statements" in undoing and not is_late and self._is_undone_as_supplied(action, undoing, effect):
            return
        try:
            self.write(action, images, effect, database, is_late=is_late)
        except (RowConflict, Rejected, NotWritten) as error:
            raise NotUndone(f"{error}") from None

    def _is_undone_as_supplied(self, action: str, undoing: Json, effect: Effect) -> bool:
        """Run the supplied undo, and commit it if it did exactly `effect`; else nothing is done."""
        database, images = undoing["database"], undoing["images"]
        engine = self._databases.engine(database)

        def keep(done: Effect, mark: Json) -> None:
            if not _is_same(done, effect):
                raise _Differs("the supplied undo does something else")
            self._kept.put_mark(action, images, mark)

        try:
            engine.perform(Sql(database=database, statements=undoing["statements"]), keep)
        except InDoubt as error:
            if not self._was_written(action, images, effect, engine):
                raise HostError(f"{error}. Fix: try again when the database answers") from None
        except InputError:
            return False
        return True

    def plan_redo(self, action: str, undone: Json) -> str:
        """Return the name under which is kept what is to be written."""
        images, name = inverse_of(undone["images"], "redo"), undone["database"]
        if conflicting := self._databases.engine(name).conflicting(self._kept.get(action, images)):
            raise InputError(f"action {action}: {', '.join(row_names(name, conflicting))} changed since it was undone")
        return images

    # --- Writing rows -----------------------------------------------------------------------------------------------

    def write(self, action: str, name: str, effect: Effect, database: str, *, is_late: bool) -> None:
        """Write an effect under a mark of this name, unless that was done before a crash.

        Raises:
            RowConflict, Rejected: as `Engine.write`.
            NotWritten: the database is busy or away, and nothing was written.
            HostError: the database is away, and does not report whether it was written.
        """
        engine = self._databases.engine(database)
        if is_late and self._was_written(action, name, effect, engine):
            return
        if effect.is_nothing:
            return
        try:
            engine.write(effect, lambda _, mark: self._kept.put_mark(action, name, mark))
        except InDoubt as error:
            if not self._was_written(action, name, effect, engine):
                raise NotWritten(f"{error}. Fix: try again when the database answers") from None
        except HostError as error:
            raise NotWritten(f"{error}") from None

    def _was_written(self, action: str, name: str, effect: Effect, engine: Engine) -> bool:
        mark = self._kept.get_mark(action, name)
        return mark is not None and engine.was_committed(mark, effect)


def _is_same(done: Effect, wanted: Effect) -> bool:
    """Whether two effects change the same rows, definitions and counters."""

    def plain(effect: Effect) -> str:
        tables = tuple(each for each in effect.plain().tables if each.removed or each.added)
        return replace(effect.plain(), tables=tables, is_deterministic=True).digest()

    return plain(done) == plain(wanted) and dict(done.counters) == dict(wanted.counters)
