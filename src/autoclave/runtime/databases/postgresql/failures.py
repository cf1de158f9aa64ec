"""Errors of PostgreSQL in words that hold no value of a row, and as the exceptions that they are here."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError

TOO_MANY = "AC001"
"""What the recorder raises when an action changes too many rows."""
_KINDS = {
    "23505": "a value must be unique",
    "23503": "a foreign key must refer to something that is there",
    "23502": "a value is missing",
    "23514": "a condition is not met",
    "23P01": "an exclusion is not met",
    "42P01": "there is no such table",
    "42703": "there is no such column",
    "42883": "there is no such function or operator for these types",
    "42501": "the role may not do that",
    "57014": "a statement ran longer than statement_timeout_s",
    "42P07": "it is there already",
    "2BP01": "something else depends on it",
    "25006": "the database may be read only",
    "428C9": "a column that the database fills itself was given a value",
    "22001": "a text is too long",
    "22003": "a number is out of range",
    "22P02": "a text is none of the type",
    "22012": "division by zero",
    "42601": "it is no SQL",
    "42804": "a type does not fit",
}
_BUSY = ("55P03", "40P01", "40001")


@contextlib.contextmanager
def translated(where: str) -> Generator[None]:
    """Raise errors of PostgreSQL as ours.

    Raises:
        InputError: the statements cannot be done.
        HostError: the database is busy or away.
    """
    import psycopg

    try:
        yield
    except AutoclaveError:
        raise
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if state in _BUSY:
            raise HostError(f"{where}: others have locked what it needs. Fix: wait, and try again") from None
        kind = type(error).__name__
        if state[:2] in ("53", "58"):
            raise HostError(f"{where}: the server lacks something ({kind}). Fix: look at its disk") from None
        if not state and isinstance(error, psycopg.DataError):
            raise InputError(f"{where}: a value cannot be sent ({kind}); a text has no NUL in it") from None
        if not state or (state[:2] in ("08", "57") and state != "57014"):
            raise HostError(f"{where}: does not answer ({kind}). Fix: look whether the server runs") from None
        raise InputError(f"{where}: {words(error)}") from None
    except (UnicodeError, OverflowError) as error:
        raise InputError(f"{where}: a value cannot be sent ({type(error).__name__})") from None


def words(error: Any) -> str:
    """Kind, table, column and constraint of an error, without what the server says of values."""
    if error.sqlstate == TOO_MANY:
        return "changes more rows than max_rows; do it in parts, or have the limit raised"
    about = error.diag
    named = [
        f"{what} {name}"
        for what, name in (
            ("table", about.table_name),
            ("column", about.column_name),
            ("constraint", about.constraint_name),
            ("type", about.datatype_name),
        )
        if name
    ]
    kind = _KINDS.get(error.sqlstate or "", f"PostgreSQL refuses it ({type(error).__name__})")
    return f"{kind} ({error.sqlstate}{', ' if named else ''}{', '.join(named)})"
