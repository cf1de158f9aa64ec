"""What can be proposed for a key-value database: commands. Pure.

Let through is what changes only the keys that it names, waits for nobody, and does the same whenever it is done. So no
scripts, no commands of the server, none on all keys, none that draw at random; and times are given as points in time,
since "in ten seconds" is another time whenever it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config import Config
from autoclave.core import InputError

_MOST_BYTES = 1_000_000
_Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)]
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
REMOVING = {"DEL": 100_000, "UNLINK": 100_000, "GETDEL": 1, "RENAME": 1, "RENAMENX": 1}
"""Commands that remove keys, and how many of the first that they name."""
_SET_WORDS = frozenset({"NX", "XX", "GET", "KEEPTTL", "EXAT", "PXAT"})


class Commands(Config):
    """Commands that are done all or none."""

    do: Literal["commands"] = "commands"
    database: str
    """The name that the settings give it."""
    commands: tuple[_Words, ...] = Field(strict=False, min_length=1, max_length=100)
    """The words of each: `["SET", "greeting", "hello"]`."""


def require_allowed(commands: Sequence[Sequence[str]]) -> None:
    """Check commands.

    Raises:
        InputError: one may do more than change the keys that it names, or something else each time.
    """
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
