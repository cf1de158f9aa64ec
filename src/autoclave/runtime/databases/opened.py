"""The databases of a manager, each opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autoclave.core import InputError
from autoclave.runtime.databases.engine import Engine, open_engine
from autoclave.runtime.databases.reversal.statements import ReverseStatements
from autoclave.runtime.databases.settings import DatabaseConnection


class Databases:
    """Engines by the names that statements use. `key_of` gives the password that a secret holds."""

    def __init__(self, connections: Mapping[str, DatabaseConnection], key_of: Callable[[str], str]) -> None:
        self._connections, self._key_of = connections, key_of
        self._engines: dict[str, Engine] = {}

    def __iter__(self):
        return iter(self._connections)

    def __contains__(self, name: object) -> bool:
        return name in self._connections

    def settings(self, name: str) -> DatabaseConnection:
        """What a person says of a database.

        Raises:
            InputError: there is no such database.
        """
        if name not in self._connections:
            known = ", ".join(self._connections) or "none"
            raise InputError(f"database {name!r}: there is no such database; there are {known}")
        return self._connections[name]

    def engine(self, name: str) -> Engine:
        """The engine of a database.

        Raises:
            InputError, HostError: there is none, or as `open_engine`.
        """
        settings = self.settings(name)
        if name not in self._engines:
            self._engines[name] = open_engine(name, settings, self._password(settings))
        return self._engines[name]

    def reverse(self, name: str) -> ReverseStatements:
        """Undo by statements in a database. Raises as `engine`."""
        engine, settings = self.engine(name), self.settings(name)
        return ReverseStatements(name, settings, self._password(settings), engine)

    def close(self) -> None:
        """Let go of all. What is held, and cannot survive that, is rolled back."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    def _password(self, settings: DatabaseConnection) -> str:
        return self._key_of(settings.password_secret) if settings.password_secret else ""
