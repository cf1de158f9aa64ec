"""One database of a Redis server: what its keys hold, and commands that are done all or none if keys are as expected.

A digest of what a key holds is of its type, its value in a canonical order, and the time at which it ends; not of the
bytes of DUMP, which differ between equal sets. Only streams and modules are compared by these bytes. What DUMP returns
is kept, and RESTORE writes it back. Keys are texts, since the words of commands are.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.servers import AWAY, require_installed, translating
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.interface import InDoubt

Words: TypeAlias = "Sequence[str | bytes | int]"
_READS: tuple[tuple[Any, ...], ...] = (
    ("TYPE",),
    ("PEXPIRETIME",),
    ("DUMP",),
    ("GET",),
    ("LRANGE", 0, -1),
    ("SMEMBERS",),
    ("HGETALL",),
    ("ZRANGE", 0, -1, "WITHSCORES"),
)
"""By which a key of any type is read; those of other types fail, and are left out."""
_SENT_AT_ONCE = 1000
_CONNECT_S = 10.0


class KeyImage(NamedTuple):
    """What a key holds: a digest, what DUMP returns in Base85, and when it ends in ms since 1970 (-1: never)."""

    digest: str
    dump: str
    end: int


Images = Mapping[str, KeyImage]
"""What keys hold; those that do not exist are left out."""
Digests = Mapping[str, str]


def digests_of(images: Images) -> dict[str, str]:
    """Return the digests of images."""
    return {key: image.digest for key, image in images.items()}


class KeysChanged(InputError):
    """Keys do not hold what they are to hold before something is done; nothing was done."""


class Store:
    """A database, on one connection. `where`: its name in errors.

    The connection is used as it is: a client that repeats what was lost on its way would do commands twice.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self._connection, self._where = connection, where
        with self.translated():
            connection.connect()

    def close(self) -> None:
        self._connection.disconnect()

    def _ask(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def _ask_all(self, commands: Sequence[Words]) -> list[Any]:
        """The answers to commands, which are sent together; errors of Redis are among them."""
        import redis

        answers: list[Any] = []
        for start in range(0, len(commands), _SENT_AT_ONCE):
            some = commands[start : start + _SENT_AT_ONCE]
            words = ([each.encode() if isinstance(each, str) else each for each in words] for words in some)
            self._connection.send_packed_command(self._connection.pack_commands(words))
            for _ in some:
                try:
                    answers.append(self._connection.read_response())
                except redis.ResponseError as error:
                    answers.append(error)
        return answers

    def keys_of(self, commands: Iterable[Sequence[str]]) -> dict[str, bool]:
        """Return the keys that commands name, and whether one of them writes each.

        Raises:
            InputError: one of them names none, or is not a command.
        """
        found: dict[str, bool] = {}
        with self.translated():
            for words in commands:
                for key, flags in self._ask("COMMAND GETKEYSANDFLAGS", *map(str.encode, words)):
                    found[key.decode()] = found.get(key.decode(), False) or b"RO" not in flags
        return found

    def read(self, keys: Collection[str]) -> Images:
        """Return what keys hold."""
        with self.translated():
            return _images(keys, self._ask_all(_reads(keys)))

    def rehearse(
        self, keys: Sequence[str], commands: Sequence[Words], keep: Callable[[Images], None]
    ) -> tuple[Images, Images]:
        """Return what keys hold before and after commands, which are done and rolled back in one transaction.

        `keep` is called with what they hold before anything is done.

        Raises:
            InputError: a command fails, or others change the keys meanwhile.
        """
        with self._watching(keys):
            before = self.read(keys)
            keep(before)
            reads = _reads(keys)
            answers = self._transact([*commands, *reads, *restoring(keys, before)])
            done, rest = answers[: len(commands)], answers[len(commands) :]
            _require_done(rest[len(reads) :])
            _require_done(done)
            return before, _images(keys, rest[: len(reads)])

    def run_if(self, keys: Sequence[str], wanted: Digests, commands: Sequence[Words]) -> tuple[Images, bool]:
        """Do commands if keys hold what is wanted; what the keys hold then, and whether no command failed.

        Raises:
            KeysChanged: they hold something else.
            HostError: the server is away; nothing was done.
            InDoubt: the connection was lost while they were done.
        """
        with self._watching(keys):
            if digests_of(self.read(keys)) != wanted:
                raise KeysChanged(f"{self._where}: what the commands change has changed since")
            answers = self._transact([*commands, *_reads(keys)])
            is_done = not any(isinstance(each, Exception) for each in answers[: len(commands)])
            return _images(keys, answers[len(commands) :]), is_done

    @contextlib.contextmanager
    def _watching(self, keys: Sequence[str]) -> Generator[None]:
        with self.translated():
            try:
                self._ask("WATCH", *map(str.encode, keys))
                yield
            except BaseException:
                self._connection.disconnect()  # which ends what was begun
                raise

    def _transact(self, commands: Sequence[Words]) -> list[Any]:
        self._ask("MULTI")
        _require_done(self._ask_all(commands))
        answers = self._execute()
        if answers is None:
            raise KeysChanged(f"{self._where}: others change the keys meanwhile")
        return answers

    def _execute(self) -> Any:
        import redis

        try:
            return self._ask("EXEC")
        except (redis.ConnectionError, redis.TimeoutError):
            raise InDoubt(f"{self._where}: the connection was lost while the commands were done") from None

    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Raise errors of Redis as ours; their words may hold values, and are left out."""
        import redis

        return translating(self._where, redis.RedisError, _explained)


def _explained(error: Exception) -> InputError | HostError:
    import redis

    if isinstance(error, redis.AuthenticationError):
        return InputError("the server does not let the user in")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return HostError(AWAY.format(type(error).__name__))
    first = f"{error}".partition(" ")[0]
    kind = first if first.isupper() and first.isalpha() else type(error).__name__
    return InputError(f"Redis refuses it ({kind})")


def restoring(keys: Iterable[str], images: Images) -> list[Words]:
    """Return the commands after which keys hold what images say, and do not exist where there is no image."""
    found: list[Words] = []
    for key in keys:
        if (image := images.get(key)) is None:
            found.append(("DEL", key))
        else:
            ends = ("ABSTTL",) if image.end > 0 else ()
            found.append(("RESTORE", key, max(image.end, 0), base64.b85decode(image.dump), "REPLACE", *ends))
    return found


def _reads(keys: Iterable[str]) -> list[Words]:
    return [(name, key, *more) for key in keys for name, *more in _READS]


def _images(keys: Iterable[str], answers: Sequence[Any]) -> Images:
    """What keys hold, from the answers to `_reads`."""
    found: dict[str, KeyImage] = {}
    for number, key in enumerate(keys):
        own = answers[number * len(_READS) : (number + 1) * len(_READS)]
        _require_done(own[:3])
        (kind, end, dump), values = own[:3], own[3:]
        if dump is not None:
            value = _value(kind.decode(), dump, values)
            digest = hashlib.sha256(repr((kind.decode(), value, end)).encode()).hexdigest()
            found[key] = KeyImage(digest, base64.b85encode(dump).decode(), int(end))
    return found


def _value(kind: str, dump: bytes, answers: Sequence[Any]) -> Any:
    """The value of a key among the answers to the last of `_READS`, such that equal values are the same."""
    kinds = ("string", "list", "set", "hash", "zset")
    if kind not in kinds:
        return dump
    value = answers[kinds.index(kind)]
    _require_done([value])
    if kind == "hash":
        return sorted(zip(value[::2], value[1::2], strict=True))
    return sorted(value) if kind == "set" else value


def _require_done(answers: Iterable[Any]) -> None:
    """Raise the first error among answers, as Redis gave it."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


def open_store(name: str, settings: DatabaseConnection, password: str) -> Store:
    """Open a database by its settings: `host` (a name, or the path of a socket), `port`, `dbname` (a number), `user`.

    Raises:
        InputError: the settings do not fit, or the server does not let the user in.
        HostError: it does not answer, or something is not installed.
    """
    require_installed(name, "Redis", "redis")
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    if not settings.dbname.isdigit():
        raise InputError(f"database {name}: engine redis needs dbname, the number of a database")
    given: dict[str, Any] = {
        "db": int(settings.dbname),
        "username": settings.user or None,
        "password": password or None,
        "socket_timeout": settings.statement_timeout_s,
        "socket_connect_timeout": _CONNECT_S,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.host.startswith("/"):
        connection: Any = redis.UnixDomainSocketConnection(path=settings.host, **given)
    else:
        connection = redis.Connection(host=settings.host or "127.0.0.1", port=settings.port or 6379, **given)
    return Store(connection, f"database {name}")
