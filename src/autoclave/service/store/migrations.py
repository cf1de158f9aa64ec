"""Schema of a store as numbered steps. A released step never changes; new ones are appended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass


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


def steps(types: Types, version: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the steps after `version`, each with the version that it leads to."""
    for number, step in enumerate(MIGRATIONS[version:], start=version + 1):
        yield number, [statement.format(**asdict(types)) for statement in step]


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE problems (
            digest {text} PRIMARY KEY,
            about {text} NOT NULL,
            statement {free_text} NOT NULL,
            body {bytes} NOT NULL,
            size {integer} NOT NULL,
            created {real} NOT NULL,
            is_deleted {integer} NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE tokens (
            id {text} PRIMARY KEY,
            label {text} NOT NULL,
            hash {text} NOT NULL,
            scopes {text} NOT NULL,
            created {real} NOT NULL,
            expires {real},
            is_revoked {integer} NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE batches (
            id {text} PRIMARY KEY,
            client {text} NOT NULL,
            idempotency_key {text} NOT NULL,
            fingerprint {text} NOT NULL,
            priority {integer} NOT NULL,
            created {real} NOT NULL,
            deadline {real},
            keep_s {real},
            UNIQUE (client, idempotency_key)
        )
        """,
        """
        CREATE TABLE jobs (
            number {number},
            id {text} NOT NULL UNIQUE,
            batch {text} NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
            place {integer} NOT NULL,
            digest {text} NOT NULL,
            label {free_text} NOT NULL,
            source {bytes},
            options {text} NOT NULL,
            state {text} NOT NULL DEFAULT 'accepted',
            starts {integer} NOT NULL DEFAULT 0,
            sequence {integer},
            verdict {text}
        )
        """,
        "CREATE INDEX jobs_of_batch ON jobs (batch, place)",
        "CREATE INDEX jobs_ended ON jobs (batch, sequence)",
        "CREATE INDEX jobs_unfinished ON jobs (state, number) WHERE state IN ('accepted', 'running')",
        "CREATE INDEX jobs_of_problem ON jobs (digest) WHERE state IN ('accepted', 'running')",
    ),
    (  # several nodes: turns, owners and watches of jobs
        "ALTER TABLE batches ADD COLUMN last_sequence {integer} NOT NULL DEFAULT 0",
        "UPDATE batches SET last_sequence = "
        "(SELECT coalesce(max(jobs.sequence), 0) FROM jobs WHERE jobs.batch = batches.id)",
        "ALTER TABLE jobs ADD COLUMN client {text} NOT NULL DEFAULT ''",
        "ALTER TABLE jobs ADD COLUMN priority {integer} NOT NULL DEFAULT 4",
        "ALTER TABLE jobs ADD COLUMN deadline {real}",
        "ALTER TABLE jobs ADD COLUMN turn {integer} NOT NULL DEFAULT 0",
        "ALTER TABLE jobs ADD COLUMN node {text}",
        """
        UPDATE jobs SET
            client = (SELECT batches.client FROM batches WHERE batches.id = jobs.batch),
            priority = (SELECT batches.priority FROM batches WHERE batches.id = jobs.batch),
            deadline = (SELECT batches.deadline FROM batches WHERE batches.id = jobs.batch),
            turn = number,
            node = CASE state WHEN 'running' THEN 'former' END
        """,
        "DROP INDEX jobs_unfinished",
        "CREATE INDEX jobs_waiting ON jobs (priority DESC, turn, number) WHERE state = 'accepted'",
        "CREATE INDEX jobs_of_client ON jobs (client, priority, turn) WHERE state = 'accepted'",
        "CREATE INDEX jobs_left ON jobs (batch) WHERE state IN ('accepted', 'running')",
        "CREATE INDEX jobs_by_deadline ON jobs (deadline) WHERE state = 'accepted' AND deadline IS NOT NULL",
        "CREATE INDEX jobs_of_node ON jobs (node) WHERE state = 'running'",
        """
        CREATE TABLE nodes (
            id {text} PRIMARY KEY,
            slots {integer} NOT NULL,
            per_s {real} NOT NULL,
            seen {real} NOT NULL
        )
        """,
        """
        CREATE TABLE watches (
            batch {text} NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
            node {text} NOT NULL,
            PRIMARY KEY (batch, node)
        )
        """,
        "CREATE INDEX watches_of_node ON watches (node)",
        "INSERT INTO watches (batch, node) SELECT id, 'former' FROM batches WHERE keep_s IS NOT NULL",
    ),
    ("ALTER TABLE batches ADD COLUMN ended {real}",),  # time at which the last of its jobs so far ended
)
