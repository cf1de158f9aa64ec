"""Effects written into a PostgreSQL database: rows put back, or done again, exactly or not at all.

The user writes, with triggers of others switched off for the time, under a recorder: what was written must be
what was meant, to the last row of all tables, or the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Keep, Rejected, RowConflict
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.evidence import Evidence
from autoclave.runtime.databases.postgresql.recorder import Recorder
from autoclave.runtime.databases.postgresql.rows import ORDERS, Rows, difference
from autoclave.runtime.databases.tables import ForeignKey, names_of

_CORRECTIONS = 2
_HOW = {"O": "ENABLE", "D": "DISABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}
_DOUBTFUL = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = ANY (%(oids)s) AND NOT convalidated)
OR EXISTS (SELECT FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_index i ON i.indrelid = k.confrelid
    WHERE k.confrelid = ANY (%(exchanged)s) AND 'r' IN (k.confdeltype, k.confupdtype)
    AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary)
"""


class RestoringServer(Server):
    """The part of an engine that writes rows."""

    def write(self, effect: Effect, keep: Keep) -> None:
        with self.transaction() as connection:
            catalogue = self.catalogue_of(connection)
            touched = [catalogue.tables[each.table] for each in effect.tables if each.table in catalogue.tables]
            for table in sorted(touched, key=lambda each: each.place):
                connection.execute(f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE")
            rows = Rows(connection, catalogue, effect)
            if conflicting := rows.conflicting():
                raise RowConflict.over(self.name, conflicting)
            self._write_rows(connection, catalogue, effect, rows)
            keep(effect, self.mark(connection))
            self.commit(connection)

    def require_possible(self, connection: Any, effect: Effect) -> None:
        """Look that an effect can be taken back, in the transaction in which it came about.

        That is so wherever what was there before may be there again. Where it may not, it is tried out and rolled back:
        where constraints were never checked for old rows; and where unique values of rows that others refer to were
        exchanged, so that rows would have to go for a while.

        Raises:
            InputError: it cannot.
        """
        import psycopg

        catalogue = self.catalogue_of(connection)
        tables = tuple(each.inverse() for each in effect.tables)
        facts = [(catalogue.tables[each.table], each.counts.get("modify", 0) > 1) for each in tables]
        for table, _ in facts:  # with row security that holds for the user, and with keys that nobody can compare
            same = table.is_same_key("t", "o")
            try:
                connection.execute(f"SELECT FROM {table.quoted} t JOIN {table.quoted} o ON {same} LIMIT 0")
            except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege) as error:
                raise InputError(
                    f"table {table.place}: its rows could not all be found again, since its row security is forced "
                    f"upon the user, too, or its key has a type that cannot be compared ({error.sqlstate}); mode "
                    '"transaction" takes it back'
                ) from None
        oids, exchanged = [table.oid for table, _ in facts], [table.oid for table, are_several in facts if are_several]
        if not connection.execute(_DOUBTFUL, {"oids": oids, "exchanged": exchanged}).fetchone()[0]:
            return
        inverse = Effect(tables)
        connection.execute("SAVEPOINT possible")
        try:
            self._write_rows(connection, catalogue, inverse, Rows(connection, catalogue, inverse))
        except Rejected as error:
            raise InputError(
                f'could not be taken back by its rows; mode "transaction" takes it back ({error})'
            ) from None
        connection.execute("ROLLBACK TO SAVEPOINT possible")

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
        raise Rejected(f"{self.where}: {reason}")

    def _is_written(
        self, connection: Any, catalogue: Catalogue, effect: Effect, rows: Rows, order: str, *, is_late: bool
    ) -> bool:
        """Whether writing did exactly what an effect says, to the tables of it and to all others."""
        places = catalogue.with_cascades(each.table for each in effect.tables) & catalogue.tables.keys()
        tables = [catalogue.tables[place] for place in sorted(places)]
        keys = [each for table in catalogue.tables.values() for each in table.foreign_keys if not each.is_deferrable]
        postponed = [each for each in keys if {each.child, each.parent} & places] if is_late else []
        for table in tables:
            if table.triggers:
                connection.execute(f"ALTER TABLE {table.quoted} DISABLE TRIGGER USER")
        self._alter_keys(connection, postponed, "DEFERRABLE INITIALLY DEFERRED")
        connection.execute("SET CONSTRAINTS ALL DEFERRED")
        found, recorder = Evidence(connection), Recorder(connection, catalogue, tables, 2**62)
        rows.write(order)
        for _ in range(_CORRECTIONS):  # of what keys carried to rows that were to stay, or to be another
            if not (wrong := difference(recorder.table_effects(), effect.tables)):
                break
            Rows(connection, catalogue, Effect(wrong)).write(ORDERS[0])
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        found.look()
        is_same = not difference(recorder.table_effects(), effect.tables) and not found.counts.keys() - recorder.heard
        recorder.close()
        self._alter_keys(connection, postponed, "NOT DEFERRABLE")
        for table in tables:
            for name, enabled in table.triggers:
                connection.execute(f"ALTER TABLE {table.quoted} {_HOW[enabled]} TRIGGER {quoted(name)}")
        after = self.catalogue_of(connection)
        if any(after.tables.get(table.place) != table for table in tables):
            raise Rejected(f"{self.where}: triggers or keys would not be as before")
        return is_same

    def _alter_keys(self, connection: Any, keys: Sequence[ForeignKey], how: str) -> None:
        for each in keys:
            table = quoted(*names_of(each.child))
            connection.execute(f"ALTER TABLE {table} ALTER CONSTRAINT {quoted(each.name)} {how}")
