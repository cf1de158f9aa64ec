"""Effects written into a PostgreSQL database: rows and definitions put back, or done again, exactly or not at all.

The user writes, with triggers and rules of others switched off for the time, under a recorder: what was written must be
what was meant, to the last row of all tables, or the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Contested, Keep, Rejected
from autoclave.runtime.databases.places import names_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, ForeignKey, TableFacts, catalogue_of, quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.recorder import Recorder
from autoclave.runtime.databases.postgresql.role import Role
from autoclave.runtime.databases.postgresql.rows import ORDERS, Rows, difference

_CORRECTIONS = 2
_HOW = {"O": "ENABLE", "D": "DISABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}
_DOUBTFUL = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = ANY (%(oids)s) AND NOT convalidated)
OR EXISTS (SELECT FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_index i ON i.indrelid = k.confrelid
    WHERE k.confrelid = ANY (%(exchanged)s) AND 'r' IN (k.confdeltype, k.confupdtype)
    AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary)
"""
_SEQUENCE = """
SELECT COALESCE(last_value, start_value - increment_by), increment_by, cycle FROM pg_catalog.pg_sequences
WHERE schemaname = %s AND sequencename = %s
"""


class Restoring:
    """Of one database. `name`: of it in names of rows; `seeds`: see `Recorder`."""

    def __init__(self, name: str, server: Server, seeds: tuple[int, int]) -> None:
        self._name, self._server, self._seeds = name, server, seeds

    def write(self, effect: Effect, keep: Keep) -> None:
        """See `Engine`."""
        with self._server.transaction() as connection:
            catalogue = catalogue_of(connection, self._server.schemas)
            touched = [catalogue.tables[each.table] for each in effect.tables if each.table in catalogue.tables]
            for table in sorted(touched, key=lambda each: each.place):
                connection.execute(f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE")
            rows = Rows(connection, catalogue, effect)
            if contested := rows.contested():
                raise Contested.over(self._name, contested)
            if effect.created:
                self._make(connection, effect)
                catalogue = catalogue_of(connection, self._server.schemas)
                rows = Rows(connection, catalogue, effect)
            self._write_rows(connection, catalogue, effect, rows)
            self._drop(connection, effect)
            for name, (left, value) in effect.counters.items():
                self._restart(connection, name, left, value)
            keep(effect, self._server.mark(connection))
            self._server.commit(connection)

    def require_possible(self, connection: Any, effect: Effect) -> None:
        """Look that an effect can be taken back, in the transaction in which it came about.

        That is so wherever what was there before may be there again. Where it may not, it is tried out and rolled back:
        where constraints were never checked for old rows; and where unique values of rows that others refer to were
        exchanged, so that rows would have to go for a while.

        Raises:
            InputError: it cannot.
        """
        catalogue = catalogue_of(connection, self._server.schemas)
        made = {each.name for each in effect.created}
        tables = tuple(each.inverse() for each in effect.tables if each.table not in made)
        facts = [(catalogue.tables[each.table], each.counts.get("modify", 0) > 1) for each in tables]
        for table, _ in facts:
            if connection.execute("SELECT pg_catalog.row_security_active(%s)", (table.oid,)).fetchone()[0]:
                raise InputError(
                    f"table {table.place}: its row security is forced upon the user, too, who could not see all rows "
                    'that an undo is about; mode "hold" takes it back'
                )
        for table, _ in facts:
            self._require_comparable(connection, table)
        oids, exchanged = [table.oid for table, _ in facts], [table.oid for table, are_several in facts if are_several]
        if not connection.execute(_DOUBTFUL, {"oids": oids, "exchanged": exchanged}).fetchone()[0]:
            return
        inverse = Effect(tables)
        connection.execute("SAVEPOINT possible")
        try:
            self._write_rows(connection, catalogue, inverse, Rows(connection, catalogue, inverse))
        except Rejected as error:
            raise InputError(f'could not be taken back by its rows; mode "hold" takes it back ({error})') from None
        connection.execute("ROLLBACK TO SAVEPOINT possible")

    def _require_comparable(self, connection: Any, table: TableFacts) -> None:
        """Look that rows can be found by their key, in the types that PostgreSQL itself knows how to compare."""
        import psycopg

        same = " AND ".join(f"t.{quoted(name)} = o.{quoted(name)}" for name in table.key) or "true"
        try:
            connection.execute(f"SELECT FROM {table.quoted} t JOIN {table.quoted} o ON {same} LIMIT 0")
        except psycopg.errors.UndefinedFunction:
            raise InputError(
                f"table {table.place}: its key is of a type that cannot be compared here, so rows would not be found "
                'again; mode "hold" takes it back'
            ) from None

    # --- Rows -------------------------------------------------------------------------------------------------------

    def _write_rows(self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows) -> None:
        """Write rows in one order after the other, until what happened is what was meant.

        Raises:
            Rejected: it is in none of them.
        """
        import psycopg

        if not effect.tables:
            return
        reason = "more would change than it changed: rows of others depend on them"
        for is_late in (False, True):
            for order in ORDERS:
                connection.execute("SAVEPOINT written")
                try:
                    if self._is_written(connection, catalogue, effect, rows, order, is_late=is_late):
                        connection.execute("RELEASE SAVEPOINT written")
                        return
                except psycopg.errors.IntegrityError as error:
                    reason = f"what others did since stands against it ({error.diag.constraint_name})"
                connection.execute("ROLLBACK TO SAVEPOINT written")
        raise Rejected(f"{self._server.where}: {reason}")

    def _is_written(
        self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows, order: str, *, is_late: bool
    ) -> bool:
        """Whether writing did exactly what an effect says, to the tables of it and to all others."""
        places = catalogue.with_cascades(each.table for each in effect.tables) & catalogue.tables.keys()
        tables = [catalogue.tables[place] for place in sorted(places)]
        keys = [each for table in catalogue.tables.values() for each in table.foreign_keys if not each.is_deferrable]
        postponed = [each for each in keys if {each.child, each.parent} & places] if is_late else []
        self._silence(connection, tables)
        self._alter_keys(connection, postponed, "DEFERRABLE INITIALLY DEFERRED")
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        recorder, wanted = Recorder(connection, catalogue, tables, 2**62, None), rows.sums(self._seeds)
        rows.write(order)
        for _ in range(_CORRECTIONS):  # of what keys carried to rows that were to stay, or to be another
            if recorder.sums_of_images(self._seeds) == wanted:
                break
            wrong = difference(recorder.table_effects(), effect.tables)
            Rows(connection, catalogue, Effect(wrong)).write(ORDERS[0])
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        is_same = recorder.sums_of_images(self._seeds) == wanted and not recorder.unheard()
        recorder.close()
        self._alter_keys(connection, postponed, "NOT DEFERRABLE")
        self._restore_silenced(connection, tables)
        after = catalogue_of(connection, self._server.schemas)
        if any(after.tables.get(table.place) != table for table in tables):
            raise Rejected(f"{self._server.where}: triggers or keys would not be as before")
        return is_same

    def _silence(self, connection: Any, tables: Sequence[TableFacts]) -> None:
        """Switch triggers and rules of others off."""
        for table in tables:
            if table.triggers:
                connection.execute(f"ALTER TABLE {table.quoted} DISABLE TRIGGER USER")
            for name, _ in table.rules:
                connection.execute(f"ALTER TABLE {table.quoted} DISABLE RULE {quoted(name)}")

    def _restore_silenced(self, connection: Any, tables: Sequence[TableFacts]) -> None:
        """Have triggers and rules fire as before; those of a partition last, as what is whole takes it along."""
        for table in sorted(tables, key=lambda each: each.level):
            for kind, named in (("TRIGGER", table.triggers), ("RULE", table.rules)):
                for name, enabled in named:
                    connection.execute(f"ALTER TABLE {table.quoted} {_HOW[enabled]} {kind} {quoted(name)}")

    def _alter_keys(self, connection: Any, keys: Sequence[ForeignKey], how: str) -> None:
        for each in keys:
            table = quoted(*names_of(each.child))
            connection.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {quoted(each.name)} {how}")

    # --- Definitions and sequences ----------------------------------------------------------------------------------

    def _make(self, connection: Any, effect: Effect) -> None:
        role = Role(self._server, connection)
        for each in effect.created:
            role.run(each.statement)
        role.end()
        for each in effect.created:
            if each.kind == "table":  # what was made out of a query is full
                connection.execute(f"DELETE FROM {quoted(*names_of(each.name))}")

    def _drop(self, connection: Any, effect: Effect) -> None:
        import psycopg

        if not effect.dropped:
            return
        role = Role(self._server, connection)
        try:
            for each in effect.dropped:
                role.run(f"DROP {each.kind.upper()} {quoted(*names_of(each.name))}")
        except psycopg.errors.DependentObjectsStillExist:
            raise Rejected(f"{self._server.where}: something of others depends on what it created") from None
        role.end()

    def _restart(self, connection: Any, name: str, left: int, value: int) -> None:
        """Set a sequence that was restarted to where it stood, unless it has gone beyond that since.

        `left`: where the restart left it. One that begins anew at its end is set only if it is still there.
        """
        schema, own = names_of(name)
        row = connection.execute(_SEQUENCE, (schema, own)).fetchone()
        if row is None:
            return
        now, step, is_cycle = row
        is_behind = now == left if is_cycle else (value - now) * step > 0
        if is_behind:
            connection.execute(f"ALTER SEQUENCE {quoted(schema, own)} RESTART WITH {int(value) + step}")
