"""One database of a Redis server as an engine of databases, with keys for rows.

Theory of operation. Commands are planned by doing them, reading what their keys hold then, and writing back what they
held before, all in one transaction (WATCH, MULTI, EXEC) of which no other client sees a part. An action and its undo
write what keys are to hold (DUMP, with the time at which each ends) by RESTORE, in one transaction, only where the keys
hold what they are to hold before it. So the keys tell after a crash, or a lost connection, whether it happened.

A digest of what a key holds is of its type, its value in a canonical order, and the time at which it ends; not of the
bytes of DUMP, which differ between equal sets. Only streams and modules are compared by these bytes. Keys are texts,
since the words of commands are. No lock is held on the server: another session counts as another client. Clusters are
not supported.
"""

import base64
import contextlib
import hashlib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.effects import Effect, TableEffect, as_name
from autoclave.runtime.databases.engine import Engine, FoundRows, Json, Keep, Reading, Rejected, RowConflict
from autoclave.runtime.databases.operations import Commands
from autoclave.runtime.databases.servers import AWAY, translating
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import InDoubt

_MOST_BYTES = 1_000_000
_COMMANDS = """
SET SETNX MSET MSETNX APPEND SETRANGE SETBIT GETSET GETDEL INCR INCRBY INCRBYFLOAT DECR DECRBY BITOP
DEL UNLINK RENAME RENAMENX COPY PERSIST EXPIREAT PEXPIREAT
HSET HSETNX HMSET HDEL HINCRBY HINCRBYFLOAT
LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LSET LINSERT LREM LTRIM LMOVE RPOPLPUSH
SADD SREM SMOVE SUNIONSTORE SINTERSTORE SDIFFSTORE
ZADD ZREM ZINCRBY ZREMRANGEBYSCORE ZREMRANGEBYRANK ZREMRANGEBYLEX ZPOPMIN ZPOPMAX ZUNIONSTORE ZINTERSTORE ZDIFFSTORE
ZRANGESTORE
"""
_ALLOWED = frozenset(_COMMANDS.split())
"""Commands that change only the keys that they name, never wait, and always do the same. So no scripts, no
commands of the server, none on all keys, none that draw at random; and times are given as points in time."""
REMOVING = {"DEL": 100_000, "UNLINK": 100_000, "GETDEL": 1, "RENAME": 1, "RENAMENX": 1}
"""Commands that remove keys, and how many of the first that they name."""
_SET_WORDS = frozenset({"NX", "XX", "GET", "KEEPTTL", "EXAT", "PXAT"})


def require_allowed(commands: Sequence[Sequence[str]]) -> None:
    """Raise InputError if a command may do more than change the keys that it names, or not always the same."""
    for number, words in enumerate(commands, start=1):
        name = words[0].upper()
        if name not in _ALLOWED:
            allowed = ", ".join(sorted(_ALLOWED))
            raise InputError(
                f"command {number}: {name[:40]} is not let through; there are {allowed} (times to live by EXPIREAT, "
                "PEXPIREAT, or SET with EXAT or PXAT)"
            )
        if name == "SET":
            _require_set(words, f"command {number}")
        if name == "COPY" and "DB" in map(str.upper, words[3:]):
            raise InputError(f"command {number}: COPY into another database is not let through")
        if sum(len(word.encode()) for word in words) > _MOST_BYTES:
            raise InputError(f"command {number}: has more than {_MOST_BYTES} bytes")


def _require_set(words: Sequence[str], where: str) -> None:
    rest = [word.upper() for word in words[3:]]
    while rest:
        word = rest.pop(0)
        if word not in _SET_WORDS:
            raise InputError(f"{where}: SET with {word[:10]} is not let through; times are given by EXAT or PXAT")
        if word in ("EXAT", "PXAT") and rest:
            rest.pop(0)


Words: TypeAlias = "Sequence[str | bytes | int]"
_READS: tuple[tuple[Any, ...], ...] = (
    *(("TYPE",), ("PEXPIRETIME",), ("DUMP",), ("GET",), ("LRANGE", 0, -1), ("SMEMBERS",), ("HGETALL",)),
    ("ZRANGE", 0, -1, "WITHSCORES"),
)
"""By which a key of any type is read; those of other types fail, and are left out."""
_SENT_AT_ONCE = 1000
_CONNECT_S = 10.0


class KeyImage(NamedTuple):
    """The content of a key: a digest, the answer of DUMP in Base85, and its expiry in ms since 1970 (-1: never)."""

    digest: str
    dump: str
    end: int


Images = Mapping[str, KeyImage]
"""The contents of keys; those that do not exist are left out."""


class RedisDatabase(Engine):
    """See `Engine`. The connection is used as it is: a client that repeats what was lost would do commands twice."""

    operation = Commands

    def __init__(self, name: str, settings: DatabaseConnection, connection: Any) -> None:
        super().__init__(name, settings)
        self._connection = connection
        with self.translated():
            connection.connect()

    def translated(self) -> contextlib.AbstractContextManager[None]:
        """Raise errors of Redis as ours; their words may hold values, and are left out."""
        return translating(self.where, redis.RedisError, _explained)

    def close(self) -> None:
        self._connection.disconnect()

    def read(self, operation: Commands, mode: Mode) -> Reading:
        keys = self._keys_of(operation)
        there = self._images(keys)
        removed = {key for name, *some in operation.commands for key in some[: REMOVING.get(name.upper(), 0)]}
        verbs = {key: "create" if key not in there else "delete" if key in removed else "modify" for key in keys}
        writes = {self._place(key): frozenset({verbs[key]}) for key, is_written in keys.items() if is_written}
        return Reading(writes, frozenset(map(self._place, keys)))

    def _place(self, key: str) -> str:
        return f"{self.settings.dbname}/{as_name(key)}"

    def _keys_of(self, operation: Commands) -> dict[str, bool]:
        """The keys that commands name, and whether one of them writes each.

        Raises InputError where one of them names none or too many, may do more than change them, or is not a command.
        """
        require_allowed(operation.commands)
        found: dict[str, bool] = {}
        with self.translated():
            for words in operation.commands:
                for name, flags in self._ask("COMMAND GETKEYSANDFLAGS", *map(str.encode, words)):
                    found[name.decode()] = found.get(name.decode(), False) or b"RO" not in flags
        if len(found) > (most := self.settings.max_rows) or "" in found:
            raise InputError(
                f"{self.where}: names {len(found)} keys, and max_rows is {most}; no name is empty. Fix: do it in "
                "parts, or have the limit raised"
            )
        return found

    def _images(self, keys: Collection[str]) -> Images:
        with self.translated():
            return _images(keys, self._ask_all(_reads(keys)))

    def rehearse(self, operation: Commands, mode: Mode) -> Effect:
        keys = [*self._keys_of(operation)]
        commands, reads = operation.commands, _reads(keys)
        with self._watching(keys):
            before = self._images(keys)
            answers = self._transact([*commands, *reads, *_restoring(keys, before)])
            done, rest = answers[: len(commands)], answers[len(commands) :]
            _require_done(rest[len(reads) :])
            _require_done(done)
            after = _images(keys, rest[: len(reads)])
        changed = sorted(_differing(before, after))
        removed, added = ([(key, [*images[key]]) for key in changed if key in images] for images in (before, after))
        if sum(len(image.dump) for images in (before, after) for image in images.values()) > self.settings.max_bytes:
            raise InputError(f"{self.where}: more bytes would be kept than max_bytes")
        tables = (TableEffect(self.settings.dbname, "[[]]", tuple(removed), tuple(added)),) if changed else ()
        return Effect(tables, reads=frozenset(map(self._place, keys)))

    def perform(self, operation: Commands, keep: Keep) -> None:
        self.write(self.rehearse(operation, Mode.IMAGES), keep)

    def was_committed(self, mark: Json, effect: Effect) -> bool:
        """See `Engine`: the keys tell, since all of them were written at once or none."""
        try:
            is_before, is_after = self.conflicting(effect), self.conflicting(effect.inverse())
        except HostError as error:
            raise InDoubt(f"{error}") from None
        return effect.has_come_true(self.where, is_before, is_after)

    def conflicting(self, effect: Effect) -> FoundRows:
        removed, added = _sides(effect)
        now = self._images({**removed, **added})
        return self._found(_differing(now, removed), now)

    def _found(self, keys: Iterable[str], images: Images) -> FoundRows:
        return {(self.settings.dbname, key): (key, [*images[key]]) if key in images else None for key in keys}

    def write(self, effect: Effect, keep: Keep) -> None:
        removed, added = _sides(effect)
        keys = [*{**removed, **added}]
        with self._watching(keys):
            before = self._images(keys)
            if conflicting := self._found(_differing(before, removed), before):
                raise RowConflict.over(self.name, conflicting)
            keep(effect, {})
            commands = _restoring(keys, added)
            left = _images(keys, self._transact([*commands, *_reads(keys)])[len(commands) :])
        if _differing(left, added):
            with self._watching(keys):
                if not _differing(self._images(keys), left):
                    self._transact(_restoring(keys, before))
            raise Rejected(f"{self.where}: keys do not hold what was written, and were put back")

    def _ask(self, *words: Any) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def _ask_all(self, commands: Sequence[Words]) -> list[Any]:
        """The answers to commands, which are sent together; errors of Redis are among them."""
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
            raise RowConflict(f"{self.where}: others change the keys meanwhile")
        return answers

    def _execute(self) -> Any:
        try:
            return self._ask("EXEC")
        except (redis.ConnectionError, redis.TimeoutError):
            raise InDoubt(f"{self.where}: the connection was lost while the commands were done") from None


def _sides(effect: Effect) -> tuple[Images, Images]:
    """Return what keys are to hold before an effect, and after it."""
    removed = {key: KeyImage(*image) for each in effect.tables for key, image in each.removed}
    return removed, {key: KeyImage(*image) for each in effect.tables for key, image in each.added}


def _differing(one: Images, other: Images) -> list[str]:
    """Keys that hold something else in the one than in the other."""
    return [
        key for key in {**one, **other} if key not in one or key not in other or one[key].digest != other[key].digest
    ]


def _explained(error: Exception) -> InputError | HostError:
    if isinstance(error, redis.AuthenticationError):
        return InputError("the server does not let the user in")
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return HostError(AWAY.format(type(error).__name__))
    first = f"{error}".partition(" ")[0]
    kind = first if first.isupper() and first.isalpha() else type(error).__name__
    return InputError(f"Redis refuses it ({kind})")


def _restoring(keys: Iterable[str], images: Images) -> list[Words]:
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


def open_database(name: str, settings: DatabaseConnection, password: str) -> RedisDatabase:
    """Open a database by its settings: `host` (a name, or the path of a socket), `port`, `dbname` (a number), `user`.

    Raises InputError where the settings do not fit, or the server does not let the user in, and HostError where it does
    not answer.
    """
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
    return RedisDatabase(name, settings, connection)
