"""Tables of a store, which `tables.sql` describes. A store that has another version of them is refused."""

from dataclasses import asdict, dataclass
from pathlib import Path

VERSION = 3
"""Raised by a change of the tables with which servers of the last release cannot work."""

ADDED_COLUMNS = {
    "tokens": {"limits": "{text} NOT NULL DEFAULT '{{}}'"},
    "problems": {"owner": "{text} NOT NULL DEFAULT ''", "expires": "{real}"},
    "batches": {"request": "{text} NOT NULL DEFAULT ''"},
    "nodes": {"name": "{text} NOT NULL DEFAULT ''", "must_end": "{integer} NOT NULL DEFAULT 0"},
}
"""Columns that a store gets when a program that knows them opens it; servers that do not know them go on with it."""
ADDED_TABLES = {
    "client_usage": """CREATE TABLE IF NOT EXISTS client_usage (
    client {text} NOT NULL,
    hour {integer} NOT NULL,  -- its first second
    cpu_s {real} NOT NULL,
    PRIMARY KEY (client, hour)
)""",
    "problems_deleted": "CREATE INDEX IF NOT EXISTS problems_deleted ON problems (digest) WHERE is_deleted = 1",
    "problems_expiring": "CREATE INDEX IF NOT EXISTS problems_expiring ON problems (expires) WHERE expires IS NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Types:
    """Column types of a database."""

    number: str
    """Generated number of a row."""
    integer: str
    real: str
    text: str
    """Sorted by bytes, whatever the locale of the database."""
    free_text: str
    """Strings of clients, with characters that some databases cannot hold as text."""
    bytes: str


SQLITE = Types("INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER", "REAL", "TEXT", "TEXT", "BLOB")
POSTGRES = Types(
    "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "BIGINT",
    "DOUBLE PRECISION",
    'TEXT COLLATE "C"',
    "BYTEA",
    "BYTEA",
)


def statements(types: Types) -> list[str]:
    template = Path(__file__).with_name("tables.sql").read_text("utf-8")
    return [part for part in filled(template, types).split(";\n") if part]


def filled(template: str, types: Types) -> str:
    return template.format(**asdict(types))


def refusal(version: int) -> str:
    """Return the reason and the fix for a store that has another version of the tables."""
    is_older = version < VERSION
    return (
        f"has version {version} of the tables, and this program needs {VERSION}. Fix: use "
        f"{'another one, and upload the problems again' if is_older else 'the newer program, or another one'}"
    )
