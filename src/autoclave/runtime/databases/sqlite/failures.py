"""Errors of SQLite in words that hold no value of a row, and as the exceptions that they are here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Generator

from autoclave.core import AutoclaveError, HostError, InputError

_PLAIN = re.compile(
    r"(UNIQUE|NOT NULL) constraint failed: [\w.$, ]+|FOREIGN KEY constraint failed"
    r"|no such (table|column|index|view): \S+"
    r"|(incomplete input|near \"[^\"'\s]{1,40}\": syntax error|datatype mismatch|interrupted)"
    r"|table \S+ has \d+ columns but \d+ values were supplied|table \S+ may not be (modified|dropped)"
)
"""Messages whose texts are names of the schema and of the statement itself."""


@contextlib.contextmanager
def translated(where: str) -> Generator[None]:
    """Raise errors of SQLite as ours.

    Raises:
        InputError: the statements cannot be done.
        HostError: the file is busy, cannot be written, or its disk fails.
    """
    import apsw

    try:
        yield
    except AutoclaveError:
        raise
    except (apsw.BusyError, apsw.LockedError):
        raise HostError(f"{where}: others write to it. Fix: wait, or give a longer lock_timeout_s") from None
    except apsw.ReadOnlyError:
        raise HostError(f"{where}: may be read only. Fix: let this user write the file and its folder") from None
    except (apsw.FullError, apsw.IOError, apsw.CantOpenError) as error:
        raise HostError(f"{where}: cannot be written ({type(error).__name__}). Fix: look at its disk") from None
    except apsw.NotADBError:
        raise InputError(f"{where}: is no SQLite database") from None
    except apsw.InterruptError:
        raise InputError(f"{where}: a statement ran longer than statement_timeout_s") from None
    except apsw.Error as error:
        raise InputError(f"{where}: {_words(error)}") from None
    except (UnicodeError, OverflowError, TypeError) as error:
        raise InputError(f"{where}: a value cannot be read or written ({type(error).__name__})") from None


def _words(error: Exception) -> str:
    message = re.sub(r"^\w+Error: ", "", str(error))
    if _PLAIN.fullmatch(message):
        return message
    if message.startswith("CHECK constraint failed"):
        return "a CHECK constraint failed"
    return f"SQLite refuses it ({type(error).__name__}); its words may hold values, and are left out"
