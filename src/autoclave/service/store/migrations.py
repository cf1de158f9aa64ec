"""The schema of a store, as numbered steps. One that was released is never changed; a new one is added at the end."""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE problems (
            digest TEXT PRIMARY KEY,
            about TEXT NOT NULL,
            statement TEXT NOT NULL,
            body BLOB NOT NULL,
            size INTEGER NOT NULL,
            created REAL NOT NULL,
            is_deleted INTEGER NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            label TEXT NOT NULL,
            hash TEXT NOT NULL,
            scopes TEXT NOT NULL,
            created REAL NOT NULL,
            expires REAL,
            is_revoked INTEGER NOT NULL DEFAULT 0
        )
        """,
        """
        CREATE TABLE batches (
            id TEXT PRIMARY KEY,
            client TEXT NOT NULL,
            idempotency_key TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            priority INTEGER NOT NULL,
            created REAL NOT NULL,
            deadline REAL,
            keep_s REAL,
            UNIQUE (client, idempotency_key)
        )
        """,
        """
        CREATE TABLE jobs (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            batch TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
            place INTEGER NOT NULL,
            digest TEXT NOT NULL,
            label TEXT NOT NULL,
            source BLOB,
            options TEXT NOT NULL,
            state TEXT NOT NULL DEFAULT 'accepted',
            starts INTEGER NOT NULL DEFAULT 0,
            sequence INTEGER,
            verdict TEXT
        )
        """,
        "CREATE INDEX jobs_of_batch ON jobs (batch, place)",
        "CREATE INDEX jobs_ended ON jobs (batch, sequence)",
        "CREATE INDEX jobs_unfinished ON jobs (state, number) WHERE state IN ('accepted', 'running')",
        "CREATE INDEX jobs_of_problem ON jobs (digest) WHERE state IN ('accepted', 'running')",
    ),
)
