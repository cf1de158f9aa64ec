"""One database of a Redis server: what its keys hold, and commands that are done all or none if keys are as expected.

What a key holds is told by its type, its value in an order of its own, and the time at which it ends; not by the bytes
of DUMP, which are others for the same set when it has once been larger. Only streams, modules and what else has no such
reading are told by these bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.interface import InDoubt

Ask = Callable[..., Any]
State = dict[bytes, str]
"""What keys hold, as digests; those that are not there are left out."""
Copy = dict[bytes, tuple[bytes, int]]
"""What keys hold, as DUMP gives it, and when they end in ms since 1970 (-1: never)."""


class Store:
    """A database, on one connection. `where`: how it is called in errors.

    The connection is used as it is: a client that repeats what was lost on its way would do commands twice.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self._connection, self._where = connection, where

    def open(self) -> None:
        """Connect, so that errors are told at once.

        Raises:
            InputError: the server does not let us in.
            HostError: it is away.
        """
        with self.translated():
            self._connection.connect()

    def close(self) -> None:
        self._connection.disconnect()

    def _ask(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def keys_of(self, commands: Iterable[Sequence[str]]) -> list[bytes]:
        """The keys that commands name, each once.

        Raises:
            InputError: one of them names none, or is none.
        """
        found: dict[bytes, None] = {}
        with self.translated():
            for words in commands:
                found.update(dict.fromkeys(self._ask("COMMAND GETKEYS", *map(str.encode, words))))
        return list(found)

    def copy(self, keys: Iterable[bytes]) -> Copy:
        """What keys hold, to be brought elsewhere."""
        found: Copy = {}
        with self.translated():
            for key in keys:
                dump, end = self._ask("DUMP", key), self._end(key)
                if dump is not None and end != -2:
                    found[key] = (dump, end)
        return found

    def load(self, copy: Copy) -> None:
        """Have nothing but what was copied."""
        with self.translated():
            self._ask("FLUSHALL")
            for key, (dump, end) in copy.items():
                self._ask("RESTORE", key, max(end, 0), dump, *(["ABSTTL"] if end > 0 else []))

    def all(self) -> State:
        """What all keys hold. For databases of ours only."""
        with self.translated():
            return self._state(self._ask("KEYS", "*"))

    def state(self, keys: Iterable[bytes]) -> State:
        """What keys hold now."""
        with self.translated():
            return self._state(keys)

    def run(self, commands: Sequence[Sequence[str]]) -> None:
        """Do commands, one after the other. For databases of ours only."""
        with self.translated():
            for words in commands:
                self._ask(*map(str.encode, words))

    def run_if(self, keys: Sequence[bytes], wanted: Mapping[bytes, str], commands: Sequence[Sequence[str]]) -> None:
        """Do commands, all or none, if some keys hold what is wanted, and nobody changes them meanwhile.

        Raises:
            InputError: they hold something else; nothing was done.
            HostError: the server is away; nothing was done.
            InDoubt: the connection was lost while they were done.
        """
        import redis

        with self.translated():
            try:
                self._ask("WATCH", *keys)
                if self._state(keys) != wanted:
                    raise InputError(f"{self._where}: what the commands are about has changed since")
                self._ask("MULTI")
                for words in commands:
                    self._ask(*map(str.encode, words))
                answers = self._execute()
            except BaseException:
                self._connection.disconnect()  # which ends what was begun
                raise
        if answers is None:
            raise InputError(f"{self._where}: what the commands are about has changed since")
        if any(isinstance(answer, redis.RedisError) for answer in answers):
            raise InputError(f"{self._where}: Redis refused a command in the middle; the others were done")

    def _execute(self) -> Any:
        import redis

        try:
            return self._ask("EXEC")
        except (redis.ConnectionError, redis.TimeoutError):
            raise InDoubt(f"{self._where}: the connection was lost while the commands were done") from None

    def _state(self, keys: Iterable[bytes]) -> State:
        found: State = {}
        for key in keys:
            kind = self._ask("TYPE", key).decode()
            if kind != "none":
                told = repr((kind, _READINGS.get(kind, _dumped)(self._ask, key), self._end(key)))
                found[key] = hashlib.sha256(told.encode()).hexdigest()
        return found

    def _end(self, key: bytes) -> int:
        return int(self._ask("PEXPIRETIME", key))

    @contextlib.contextmanager
    def translated(self) -> Generator[None]:
        """Raise errors of Redis as ours; their words may hold values, and are left out.

        Raises:
            InputError: a command cannot be done.
            HostError: the server is away, or does not let us.
        """
        import redis

        try:
            yield
        except AutoclaveError:
            raise
        except redis.AuthenticationError:
            raise InputError(f"{self._where}: the server does not let the user in") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            kind = type(error).__name__
            raise HostError(f"{self._where}: does not answer ({kind}). Fix: look whether the server runs") from None
        except redis.RedisError as error:
            first = f"{error}".partition(" ")[0]
            kind = first if first.isupper() and first.isalpha() else type(error).__name__
            raise InputError(f"{self._where}: Redis refuses it ({kind})") from None
        except UnicodeError:
            raise InputError(f"{self._where}: a word cannot be sent") from None


def _dumped(ask: Ask, key: bytes) -> Any:
    return ask("DUMP", key)


def _pairs(flat: Sequence[bytes]) -> Any:
    return sorted(zip(flat[::2], flat[1::2], strict=True))


_READINGS: Mapping[str, Callable[[Ask, bytes], Any]] = {
    "string": lambda ask, key: ask("GET", key),
    "list": lambda ask, key: ask("LRANGE", key, 0, -1),
    "set": lambda ask, key: sorted(ask("SMEMBERS", key)),
    "hash": lambda ask, key: _pairs(ask("HGETALL", key)),
    "zset": lambda ask, key: ask("ZRANGE", key, 0, -1, "WITHSCORES"),
}
"""How the value of a type is read so that equal values are read equally."""
