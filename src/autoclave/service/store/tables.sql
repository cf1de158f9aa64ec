CREATE TABLE problems (
    digest {text} PRIMARY KEY,
    about {text} NOT NULL,
    statement {free_text} NOT NULL,
    body {bytes} NOT NULL,
    size {integer} NOT NULL,
    created {real} NOT NULL,
    is_deleted {integer} NOT NULL DEFAULT 0
);
CREATE TABLE tokens (
    id {text} PRIMARY KEY,
    label {text} NOT NULL,
    hash {text} NOT NULL,
    scopes {text} NOT NULL,
    created {real} NOT NULL,
    expires {real},
    is_revoked {integer} NOT NULL DEFAULT 0
);
CREATE TABLE batches (
    id {text} PRIMARY KEY,
    client {text} NOT NULL,
    idempotency_key {text} NOT NULL,
    fingerprint {text} NOT NULL,
    priority {integer} NOT NULL,
    created {real} NOT NULL,
    deadline {real},
    keep_s {real},
    last_sequence {integer} NOT NULL DEFAULT 0,
    ended {real},  -- time at which the last of its jobs so far ended
    UNIQUE (client, idempotency_key)
);
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
    verdict {text},
    client {text} NOT NULL,
    priority {integer} NOT NULL,
    deadline {real},
    turn {integer} NOT NULL,
    node {text}
);
CREATE INDEX jobs_of_batch ON jobs (batch, place);
CREATE INDEX jobs_ended ON jobs (batch, sequence);
CREATE INDEX jobs_of_problem ON jobs (digest) WHERE state IN ('accepted', 'running');
CREATE INDEX jobs_waiting ON jobs (priority DESC, turn, number) WHERE state = 'accepted';
CREATE INDEX jobs_of_client ON jobs (client, priority, turn) WHERE state = 'accepted';
CREATE INDEX jobs_left ON jobs (batch) WHERE state IN ('accepted', 'running');
CREATE INDEX jobs_by_deadline ON jobs (deadline) WHERE state = 'accepted' AND deadline IS NOT NULL;
CREATE INDEX jobs_of_node ON jobs (node) WHERE state = 'running';
CREATE TABLE nodes (
    id {text} PRIMARY KEY,
    slots {integer} NOT NULL,
    per_s {real} NOT NULL,
    seen {real} NOT NULL
);
CREATE TABLE watches (
    batch {text} NOT NULL REFERENCES batches (id) ON DELETE CASCADE,
    node {text} NOT NULL,
    PRIMARY KEY (batch, node)
);
CREATE INDEX watches_of_node ON watches (node);
