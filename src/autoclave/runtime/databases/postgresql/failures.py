"""Errors of PostgreSQL in words that hold no value of a row, and as the exceptions that they are here."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.databases.servers import AWAY, BUSY, LACKS, translating

TOO_MANY = "AC001"
"""What the recorder raises when an action changes too many rows."""
_WORDS = {
    "57014": "a statement ran longer than statement_timeout_s",
    "42501": "the role may not do that",
    "25006": "the database may be read only",
}
_BUSY = ("55P03", "40P01", "40001")


def translated(where: str) -> AbstractContextManager[None]:
    """Raise errors of PostgreSQL as ours; see `translating`."""
    import psycopg

    return translating(where, psycopg.Error, _explained)


def _explained(error: Any) -> AutoclaveError:
    """Kind, table, column and constraint of an error, without what the server says of values."""
    import psycopg

    state, kind = error.sqlstate or "", type(error).__name__
    if state in _BUSY:
        return HostError(BUSY)
    if state[:2] in ("53", "58"):
        return HostError(LACKS.format(kind))
    if not state and isinstance(error, psycopg.DataError):
        return InputError(f"a value cannot be sent ({kind}); a text has no NUL in it")
    if not state or (state[:2] in ("08", "57") and state != "57014"):
        return HostError(AWAY.format(kind))
    if state == TOO_MANY:
        return InputError("changes more rows than max_rows; do it in parts, or have the limit raised")
    places = {what: getattr(error.diag, f"{what}_name") for what in ("table", "column", "constraint", "datatype")}
    named = "".join(f", {what} {name}" for what, name in places.items() if name)
    words = _WORDS.get(state) or re.sub("(?<=[a-z])(?=[A-Z])", " ", kind).lower()
    return InputError(f"{words} ({state}{named})")
