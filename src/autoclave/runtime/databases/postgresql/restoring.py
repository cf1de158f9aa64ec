"""Effects written into a PostgreSQL database: rows put back, or done again, exactly or not at all.

The user writes, with triggers and rules of others switched off for the time, under a recorder: what was written must be
what was meant, to the last row of all tables, or the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Keep, Rejected, RowConflict
from autoclave.runtime.databases.places import names_of
from autoclave.runtime.databases.postgresql.catalogue import Catalogue, TableFacts, catalogue_of, quoted
from autoclave.runtime.databases.postgresql.connection import Server
from autoclave.runtime.databases.postgresql.evidence import counted, counted_since
from autoclave.runtime.databases.postgresql.recorder import Recorder
from autoclave.runtime.databases.postgresql.rows import ORDERS, Rows, difference
from autoclave.runtime.databases.tables import ForeignKey

_CORRECTIONS = 2
_HOW = {"O": "ENABLE", "D": "DISABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA"}
_DOUBTFUL = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = ANY (%(oids)s) AND NOT convalidated)
OR EXISTS (SELECT FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_index i ON i.indrelid = k.confrelid
    WHERE k.confrelid = ANY (%(exchanged)s) AND 'r' IN (k.confdeltype, k.confupdtype)
    AND (i.indisunique OR i.indisexclusion) AND NOT i.indisprimary)
"""


class Restoring:
    """Of one database. `name`: of it in names of rows."""

    def __init__(self, name: str, server: Server) -> None:
        self._name, self._server = name, server

    def write(self, effect: Effect, keep: Keep) -> None:
        """See `Engine`."""
        with self._server.transaction() as connection:
            catalogue = catalogue_of(connection, self._server.schemas)
            touched = [catalogue.tables[each.table] for each in effect.tables if each.table in catalogue.tables]
            for table in sorted(touched, key=lambda each: each.place):
                connection.execute(f"LOCK TABLE {table.quoted} IN SHARE ROW EXCLUSIVE MODE")
            rows = Rows(connection, catalogue, effect)
            if conflicting := rows.conflicting():
                raise RowConflict.over(self._name, conflicting)
            self._write_rows(connection, catalogue, effect, rows)
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
        import psycopg

        catalogue = catalogue_of(connection, self._server.schemas)
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
        before, recorder = counted(connection), Recorder(connection, catalogue, tables, 2**62)
        rows.write(order)
        for _ in range(_CORRECTIONS):  # of what keys carried to rows that were to stay, or to be another
            if not (wrong := difference(recorder.table_effects(), effect.tables)):
                break
            Rows(connection, catalogue, Effect(wrong)).write(ORDERS[0])
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        is_same = not difference(recorder.table_effects(), effect.tables) and not (
            counted_since(before, counted(connection)).keys() - recorder.heard
        )
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
