"""Errors of MariaDB in words that hold no value of a row, and as the exceptions that they are here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator

from autoclave.core import AutoclaveError, HostError, InputError

_KINDS = {
    1062: "a value must be unique",
    1586: "a value must be unique",
    1451: "a foreign key refers to it",
    1452: "a foreign key must refer to something that is there",
    1048: "a value is missing",
    1364: "a value is missing",
    4025: "a condition is not met",
    1146: "there is no such table",
    1054: "there is no such column",
    1305: "there is no such function",
    1064: "it is no SQL of MariaDB",
    1142: "the user may not do that",
    1143: "the user may not do that",
    1044: "the user may not do that",
    1370: "the user may not do that",
    1290: "the database may be read only",
    1406: "a text is too long",
    1264: "a number is out of range",
    1690: "a number is out of range",
    1366: "a value is none of the type",
    1292: "a value is none of the type",
    1265: "a value does not fit its column",
    1365: "division by zero",
    1906: "a column that the database fills itself was given a value",
    1969: "a statement ran longer than statement_timeout_s",
    1136: "there are not as many values as columns",
    1093: "it reads the table that it writes, which MariaDB does not do",
}
_BUSY = (1205, 1213, 1020, 3572)
_AWAY = (2002, 2003, 2006, 2013, 2014, 2055, 1053, 1927, 1152, 1158, 1159, 1160, 1161, 4031)
_LACKS = (1021, 1037, 1040, 1041, 1114, 1203, 1226, 3, 28)
_UNIQUE = re.compile(r" for key '([\w.$]+)'$")
_CONSTRAINT = re.compile(r"CONSTRAINT `([\w$]+)` FOREIGN KEY")


@contextlib.contextmanager
def translated(where: str) -> Generator[None]:
    """Raise errors of MariaDB as ours.

    Raises:
        InputError: the statements cannot be done.
        HostError: the database is busy or away.
    """
    import pymysql

    try:
        yield
    except AutoclaveError:
        raise
    except pymysql.Error as error:
        number = number_of(error)
        if number in _BUSY:
            raise HostError(f"{where}: others have locked what it needs. Fix: wait, and try again") from None
        if number in (1045, 1698, 1049):
            raise InputError(f"{where}: the server does not let the user in, or has no such database") from None
        if number in _LACKS:
            raise HostError(f"{where}: the server lacks something ({number}). Fix: look at its disk") from None
        if number in _AWAY or isinstance(error, pymysql.InterfaceError):
            raise HostError(f"{where}: does not answer ({number}). Fix: look whether the server runs") from None
        raise InputError(f"{where}: {words(error)}") from None
    except (UnicodeError, OverflowError) as error:
        raise InputError(f"{where}: a value cannot be sent ({type(error).__name__})") from None


def number_of(error: Exception) -> int:
    """The number of an error; 0: it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def words(error: Exception) -> str:
    """Kind and constraint of an error, without what the server says of values."""
    number = number_of(error)
    message = f"{error.args[1]}" if len(error.args) > 1 else ""
    pattern = {1062: _UNIQUE, 1451: _CONSTRAINT, 1452: _CONSTRAINT}.get(number)
    named = pattern.search(message) if pattern else None
    kind = _KINDS.get(
        number, f"MariaDB refuses it ({type(error).__name__}); its words may hold values, and are left out"
    )
    return f"{kind} ({number}{f', constraint {named[1]}' if named else ''})"
