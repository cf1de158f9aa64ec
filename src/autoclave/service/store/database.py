"""A database that speaks SQL, as the statements of a store see it. How it is reached, subclasses know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from autoclave.service.store.interface import Event

_AT_ONCE = 500
"""Values in one statement."""


class Database(ABC):
    """Placeholders are `?`."""

    NOW: ClassVar[str]
    """The clock of the database: all nodes go by the same."""
    LOCKED: ClassVar[str]
    """Behind SELECT: hold the rows until the transaction ends."""
    FREE: ClassVar[str]
    """Behind SELECT: hold the rows, and leave out those that somebody else holds."""

    node: str
    """Name of this node; no other, and no former process, has the same."""

    @abstractmethod
    def _changing(self) -> AbstractContextManager[list[Event]]:
        """One transaction of this thread; undone if it raises. When it ends, nodes hear what is put into the list."""

    @abstractmethod
    def _lock_queue(self) -> None:
        """Until the transaction ends, nobody else accepts jobs."""

    @abstractmethod
    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """What a statement selects, in the transaction of this thread if there is one."""

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> int:
        """Change something, in a transaction; how many rows."""

    @abstractmethod
    def _run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """A change for each of many rows."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    def _row(self, statement: str, *values: Any) -> Any:
        return next(iter(self._rows(statement, *values)), None)

    def _value(self, statement: str, *values: Any) -> Any:
        return self._row(statement, *values)[0]

    def _rows_of(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """The rows for any number of values, in place of the `*` in brackets."""
        rows: list[Any] = []
        for start in range(0, len(values), _AT_ONCE):
            part = values[start : start + _AT_ONCE]
            rows += self._rows(statement.replace("(*)", f"({', '.join('?' * len(part))})"), *part)
        return rows
