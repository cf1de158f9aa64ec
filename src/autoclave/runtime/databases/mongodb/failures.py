"""Errors of MongoDB in words that hold no value of a document, and as the exceptions that they are here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator, Mapping
from typing import Any

from autoclave.core import AutoclaveError, HostError, InputError

_KINDS = {
    11000: "a value must be unique",
    121: "a document does not meet the validator of its collection",
    66: "an _id cannot be changed",
    2: "a value is not allowed",
    9: "it cannot be understood",
    13: "the user may not do that",
    14: "a value is none of the type",
    26: "there is no such collection",
    28: "a path leads nowhere",
    40: "two operators are about one field",
    50: "it ran longer than statement_timeout_s",
    166: "it is about a view",
    10334: "a document would be too large",
    17280: "a key is too long for an index",
}
REFUSED_DOCUMENTS = frozenset({11000, 121})
_NOT_LET_IN = frozenset({18, 11})
_MOVED = frozenset({10107, 13435, 11602, 189, 91, 11600, 13436})
_NO_TRANSACTIONS = 20
_INDEX = re.compile(r" index: (\S+) dup key")


class Busy(HostError):
    """Others have changed, or are changing, what a transaction needs; it was rolled back, and may be tried again."""


@contextlib.contextmanager
def translated(where: str) -> Generator[None]:
    """Raise errors of MongoDB as ours.

    Raises:
        InputError: the statements cannot be done.
        Busy: others stand against it now.
        HostError: the database is away.
    """
    from bson.errors import BSONError
    from pymongo.errors import ConnectionFailure, DocumentTooLarge, PyMongoError

    try:
        yield
    except AutoclaveError:
        raise
    except ConnectionFailure as error:  # before the label: what cannot be reached is not tried over and over
        raise HostError(
            f"{where}: does not answer ({type(error).__name__}). Mend: look whether the server runs"
        ) from None
    except (DocumentTooLarge, BSONError, UnicodeError, OverflowError) as error:
        raise InputError(f"{where}: a value cannot be sent ({type(error).__name__})") from None
    except PyMongoError as error:
        code = code_of(error)
        if error.has_error_label("TransientTransactionError"):
            raise Busy(f"{where}: others are changing what it needs ({code}). Mend: wait, and try again") from None
        if code in _NOT_LET_IN:
            raise InputError(f"{where}: the server does not let the user in ({code})") from None
        if code in _MOVED:
            raise HostError(f"{where}: the server is ending, or not the primary ({code}). Mend: try again") from None
        if code == _NO_TRANSACTIONS:
            raise InputError(f"{where}: the server has no transactions; it must be of a replica set") from None
        raise InputError(f"{where}: {words(error)}") from None


def code_of(error: Exception) -> int:
    """The number of an error; 0: it has none."""
    code = _first(error).get("code", getattr(error, "code", None))
    return code if isinstance(code, int) else 0


def words(error: Exception) -> str:
    """Kind and index of an error, without what the server says of values."""
    code = code_of(error)
    named = _INDEX.search(f"{_first(error).get('errmsg', '')}") if code == 11000 else None
    kind = _KINDS.get(code, f"MongoDB refuses it ({type(error).__name__}); its words may hold values, and are left out")
    return f"{kind} ({code}{f', index {named[1]}' if named else ''})"


def _first(error: Exception) -> Mapping[str, Any]:
    """What the server says of an error: of a bulk, of the first in it."""
    details = getattr(error, "details", None) or {}
    return next(iter(details.get("writeErrors") or ()), details)
