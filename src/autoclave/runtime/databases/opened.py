"""The databases of a manager, each opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from autoclave.core import InputError
from autoclave.runtime.databases.settings import DatabaseConnection


class _Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=_Closable)


class Databases(Generic[Opened]):
    """What is opened by the names that operations use. `key_of` gives the password that a secret holds."""

    def __init__(
        self,
        connections: Mapping[str, DatabaseConnection],
        key_of: Callable[[str], str],
        open_one: Callable[[str, DatabaseConnection, str], Opened],
    ) -> None:
        self._connections, self._key_of, self._open_one = connections, key_of, open_one
        self._engines: dict[str, Opened] = {}

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

    def engine(self, name: str) -> Opened:
        """The engine of a database.

        Raises:
            InputError, HostError: there is none, or it cannot be opened.
        """
        settings = self.settings(name)
        if name not in self._engines:
            password = self._key_of(settings.password_secret) if settings.password_secret else ""
            self._engines[name] = self._open_one(name, settings, password)
        return self._engines[name]

    def close(self) -> None:
        """Let go of all. Transactions that cannot survive that are rolled back."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()
