"""Statements in the SQL of a database, which subclasses of `Statements` send. Placeholders are `?`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from autoclave.service.store.records import Event
from autoclave.service.store.schema import ADDED_COLUMNS, ADDED_TABLES, Types, filled

_VALUES_AT_ONCE = 500


class Statements(ABC):
    """Queries, and transactions with their events."""

    NOW: ClassVar[str]
    """Expression for the time of the database, the common clock of all nodes."""
    LOCKED: ClassVar[str]
    """Suffix of SELECT that locks the rows until the transaction ends."""
    FREE: ClassVar[str]
    """Suffix of SELECT that locks the rows and skips locked ones."""
    COLUMNS: ClassVar[str]
    """Query for the names of the columns of a table; in PostgreSQL also of an index."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[list[Event]]:
        """Run a transaction of this thread, rolled back on an error; a commit sends the events in the list."""

    @abstractmethod
    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a query, in the transaction of this thread if it has one."""

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> int:
        """Execute a statement in the transaction; return the number of changed rows."""

    @abstractmethod
    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values."""

    def _row(self, statement: str, *values: Any) -> Any:
        return next(iter(self._rows(statement, *values)), None)

    def _value(self, statement: str, *values: Any) -> Any:
        return self._row(statement, *values)[0]

    def _rows_of(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows for any number of values, which replace `(*)` in the statement."""
        rows: list[Any] = []
        for start in range(0, len(values), _VALUES_AT_ONCE):
            part = values[start : start + _VALUES_AT_ONCE]
            rows += self._rows(statement.replace("(*)", f"({', '.join('?' * len(part))})"), *part)
        return rows

    def _add_to_tables(self, types: Types) -> None:
        """Add what earlier programs with the same version of the tables do not have, and do not miss."""
        for table, columns in ADDED_COLUMNS.items():
            known = {row[0] for row in self._rows(self.COLUMNS, table)}
            for name, form in columns.items():
                if name not in known:  # even without an effect, the statement would wait for all transactions
                    self._run(f"ALTER TABLE {table} ADD COLUMN {name} {filled(form, types)}")
        for name, statement in ADDED_TABLES.items():
            if not self._rows(self.COLUMNS, name):  # an index too would wait for all uploads
                self._run(filled(statement, types))
