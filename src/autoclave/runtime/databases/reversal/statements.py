"""Undo by the statements of an action: whether they may be planned with, what stands against them, and their use.

They are tested where nothing can happen (`trial`), and on the rows as they are, where all is rolled back. When they are
used, they run in one transaction that is committed only if they did the inverse of what the action did, row by row.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Json, Keep, Reading
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.reversal.ground import reversals_of
from autoclave.runtime.databases.reversal.outlines import deviation, outcome_differs, outlined
from autoclave.runtime.databases.reversal.trial import Trial, WrongUndo, try_out
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt, NotUndone

_SHOWN = 10


def undo_of(sql: Sql) -> Sql:
    """The statements that take an action back, as an operation."""
    return Sql(database=sql.database, statements=sql.undo)


def reading_of_both(engine: Engine, sql: Sql) -> Reading:
    """What an action and its undo are about.

    Raises:
        InputError: one of them is refused, or defines something; or the undo would do something else another time.
    """
    act = engine.read(sql, Mode.IMAGES)
    try:
        undo = engine.read(undo_of(sql), Mode.IMAGES)
    except InputError as error:
        raise InputError(f"undo: {error}") from None
    if act.defines or undo.defines:
        name = min(act.defines | undo.defines)
        raise InputError(f'undo: {name} is defined; reverse statements are for rows. Fix: leave it out, or mode "hold"')
    if not undo.is_settled:
        raise InputError(
            "undo: asks a clock, draws by lot, or asks what its connection did last, so it would do something else "
            "when it is used than when it is tested. Fix: name the rows, or leave it out, and rows are kept"
        )
    tables = {*act.writes, *undo.writes}
    writes = {table: act.writes.get(table, frozenset()) | undo.writes.get(table, frozenset()) for table in tables}
    return Reading(writes, act.reads | undo.reads)


class ReverseStatements:
    """Of one database. `password`: of its user."""

    def __init__(self, name: str, connection: DatabaseConnection, password: str, engine: Engine) -> None:
        self._name, self._connection, self._password, self._engine = name, connection, password, engine
        self._kind = reversals_of(name, connection.engine)

    def tested(self, sql: Sql) -> Trial:
        """Test the undo of an action: on generated rows, and on the rows that there are, which stay as they are.

        Raises:
            WrongUndo, NotTestable: see `try_out`.
        """
        ground = self._kind.open_ground(self._name, self._connection, self._password)
        with contextlib.closing(ground):
            trial = try_out(ground, sql, undo_of(sql))
        parameters = (*sql.parameters, *(() for _ in sql.undo)) if sql.parameters else ()
        both = Sql(database=sql.database, statements=(*sql.statements, *sql.undo), parameters=parameters)
        try:
            left = self.outlined(self._engine.rehearse(both, Mode.IMAGES))
        except InputError as error:
            raise WrongUndo(f"undo: is wrong: with the rows as they are it fails ({error})") from None
        wrong = [each.table for each in left.tables if Counter(each.removed) != Counter(each.added)]
        if wrong:
            raise WrongUndo(f"undo: is wrong: with the rows as they are, {', '.join(wrong)} would not be as before")
        return trial

    def outlined(self, effect: Effect) -> Effect:
        """An effect with digests for its rows."""
        return outlined(effect, self._kind.outline)

    def contested(self, sql: Sql, act: Effect) -> tuple[tuple[str, str], ...]:
        """Rows, by table and key, that are not as an action left them."""
        try:
            undo = self._engine.rehearse(undo_of(sql), Mode.IMAGES)
        except InputError:  # whoever uses it is told why
            return ()
        return deviation(self.outlined(undo), self.outlined(act)).contested

    def use(self, sql: Sql, act: Effect, keep: Keep, *, is_forced: bool) -> None:
        """Run the undo, and commit it if the rows are as they were before the action.

        `is_forced`: whether rows may have been changed by others since, as long as they come out as before.

        Raises:
            NotUndone: it fails, or does anything else; nothing was done.
            InDoubt: the connection was lost while it was committed.
        """
        own = self.outlined(act)

        def kept(effect: Effect, mark: Json) -> None:
            self._require_inverse(self.outlined(effect), own, is_forced)
            keep(effect, mark)

        try:
            self._engine.perform(undo_of(sql), kept)
        except (NotUndone, InDoubt, HostError):
            raise
        except InputError as error:
            raise NotUndone(f"the undo fails: {error}") from None

    def _require_inverse(self, undo: Effect, act: Effect, is_forced: bool) -> None:
        found = deviation(undo, act)
        if found.contested and not is_forced:
            raise NotUndone(f"somebody else has changed {self._told(found.contested)}")
        if found.beyond:
            raise NotUndone(f"the undo would change {self._told(found.beyond)}, which the action did not touch")
        if wrong := tuple(outcome_differs(undo, act)):
            raise NotUndone(f"{self._told(wrong)} would not be as before")

    def _told(self, rows: tuple[tuple[str, str], ...]) -> str:
        names = dict.fromkeys(f"{self._name}/{table}/{key}".rstrip("/") for table, key in rows)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return ", ".join([*names][:_SHOWN]) + more


def in_words(trial: Trial, sql: Sql) -> Iterator[str]:
    """What a test showed, and what it did not."""
    count = len(sql.undo)
    yield (
        f"undo by {count} statement{'' if count == 1 else 's'} of its own, tested in {trial.num_worlds} copies of the "
        "schema with generated rows, and with the rows as they are; no rows are kept, only digests of those it changes"
    )
    yield (
        "that is no proof for other rows: when the undo is used, it is rolled back unless it brings back exactly what "
        "this action took"
    )
    for name in trial.counters:
        yield f"counter {name} is not as before after the undo: a gap stays"
