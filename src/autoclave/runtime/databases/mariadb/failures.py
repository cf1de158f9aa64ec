"""Errors of MariaDB in words that hold no value of a row, and as the exceptions that they are here."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.databases.servers import AWAY, BUSY, LACKS, translating

_WORDS = {
    1062: "a value must be unique",
    1451: "a foreign key refers to it",
    1452: "a foreign key must refer to something that is there",
    4025: "a condition is not met",
    1264: "a number is out of range",
    1690: "a number is out of range",
    1366: "a value is none of the type",
    1292: "a value is none of the type",
    1906: "a column that the database fills itself was given a value",
    1969: "a statement ran longer than statement_timeout_s",
}
_BUSY = (1205, 1213, 1020, 3572)
_AWAY = (2002, 2003, 2006, 2013, 2014, 2055, 1053, 1927, 1152, 1158, 1159, 1160, 1161, 4031)
_LACKS = (1021, 1037, 1040, 1041, 1114, 1203, 1226, 3, 28)
_NO_ENTRY = (1045, 1698, 1049)
_NAMED = {
    1062: re.compile(r" for key '([\w.$]+)'$"),
    1451: re.compile(r"CONSTRAINT `([\w$]+)` FOREIGN KEY"),
    1452: re.compile(r"CONSTRAINT `([\w$]+)` FOREIGN KEY"),
}


def translated(where: str) -> AbstractContextManager[None]:
    """Raise errors of MariaDB as ours; see `translating`."""
    import pymysql

    return translating(where, pymysql.Error, _explained)


def _explained(error: Any) -> AutoclaveError:
    import pymysql

    number = number_of(error)
    if number in _BUSY:
        return HostError(BUSY)
    if number in _NO_ENTRY:
        return InputError("the server does not let the user in, or has no such database")
    if number in _LACKS:
        return HostError(LACKS.format(number))
    if number in _AWAY or isinstance(error, pymysql.InterfaceError):
        return HostError(AWAY.format(number))
    return InputError(told(error))


def number_of(error: Exception) -> int:
    """The number of an error; 0: it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def told(error: Exception) -> str:
    """Kind and constraint of an error, without what the server says of values."""
    from pymysql.constants import ER

    number, message = number_of(error), f"{error.args[-1]}"
    named = _NAMED[number].search(message) if number in _NAMED else None
    names = [name.replace("_", " ").lower() for name, value in vars(ER).items() if value == number]
    kind = _WORDS.get(number) or next(iter(names), "MariaDB refuses it")
    return f"{kind} ({number}{f', constraint {named[1]}' if named else ''})"
