"""What a statement on an SQLite file reads is told and needs a grant, by whatever syntax it is read."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw
import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.grants import Grant
from tests.runtime.databases.shops import Shop, done, session_on

MADE = """
CREATE TABLE secret (v TEXT);
CREATE TABLE note (id INTEGER PRIMARY KEY, t TEXT);
CREATE TABLE parent (id INTEGER PRIMARY KEY, t TEXT);
CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES Parent (id));
CREATE VIEW shown AS SELECT v FROM secret;
CREATE TABLE with_trigger (a);
CREATE TRIGGER with_trigger_more AFTER INSERT ON with_trigger BEGIN
    UPDATE note SET t = NEW.a IN secret WHERE id = 1;
END;
INSERT INTO secret VALUES ('canary'); INSERT INTO note VALUES (1, 'a'); INSERT INTO parent VALUES (1, 'p'), (2, 'q');
"""
BY_SYNTAX = [
    ("UPDATE note SET t = 'canary' IN secret WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'canary' IN Secret WHERE id = 1", "secret"),
    ("INSERT INTO note VALUES (2, 'canary' IN secret)", "secret"),
    ("INSERT INTO note VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET t = 'canary' IN secret", "secret"),
    ("UPDATE note SET t = EXISTS (VALUES ('canary' IN secret)) WHERE id = 1", "secret"),
    ("UPDATE note SET t = (SELECT v FROM secret) WHERE id = 1", "secret"),
    ("UPDATE note SET t = (SELECT count(*) FROM secret) WHERE id = 1", "secret"),
    ("UPDATE note SET t = EXISTS (SELECT 1 FROM SECRET) WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'x' WHERE id = 1 RETURNING (SELECT v FROM secret)", "secret"),
    ("WITH c AS (SELECT v FROM secret) INSERT INTO note (t) SELECT v FROM c", "secret"),
    ("UPDATE note SET t = v FROM secret", "secret"),
    ("UPDATE note SET t = 'canary' IN shown WHERE id = 1", "secret"),
    ("UPDATE note SET t = 'canary' IN shown WHERE id = 1", "shown"),
    ("INSERT INTO with_trigger VALUES ('canary')", "secret"),
    ("INSERT INTO note (t) SELECT value FROM json_each('[1]')", "json_each"),
    ("INSERT INTO note (t) SELECT sql FROM sqlite_schema", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT sql FROM main.SQLITE_MASTER", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT count(*) FROM sqlite_master", "sqlite_schema"),
    ("UPDATE note SET t = 'x' IN (SELECT name FROM sqlite_schema) WHERE id = 1", "sqlite_schema"),
    ("CREATE TABLE copy AS SELECT sql FROM sqlite_schema", "sqlite_schema"),
    ("INSERT INTO note (t) SELECT pageno FROM dbstat", "dbstat"),
]
ALLOWED = [(name, ("create", "modify")) for name in ("note", "with_trigger")] + [("copy", ("define", "create"))]


def mode_of(statement: str) -> str:
    return "transaction" if statement.startswith("CREATE") else "images"


@pytest.fixture
def small(tmp_path: Path) -> Shop:
    path = tmp_path / "small.db"
    with contextlib.closing(apsw.Connection(f"{path}")) as made:
        made.execute(MADE)
    settings = DatabaseConnection(engine="sqlite", path=f"{path}", lock_timeout_s=0.3)
    return Shop(settings, lambda statement: None, lambda: None, tmp_path / "state")


def granting(shop: Shop, *readable: str):
    session = session_on({"shop": shop.settings}, shop.state, granted=False)
    for name, verbs in [*ALLOWED, *((each, ("read",)) for each in ("note", *readable))]:
        session.permissions.grant(
            Grant(resources=(f"databases/shop/main/{name}",), verbs=verbs, minimum_guarantee=Guarantee.NONE)
        )
    return session


@pytest.mark.parametrize(("statement", "name"), BY_SYNTAX)
def test_a_table_that_is_read_needs_a_grant_by_whatever_syntax(small: Shop, statement: str, name: str):
    others = {"secret", "shown", "json_each", "sqlite_schema", "dbstat", "with_trigger"} - {name}
    with granting(small, *others) as session, pytest.raises(NotPermitted, match=f"read 'databases/shop/main/{name}'"):
        done(session, statement, mode=mode_of(statement))


@pytest.mark.parametrize(("statement", "name"), BY_SYNTAX)
def test_what_is_read_is_told_where_it_is_granted(small: Shop, statement: str, name: str):
    with small.session() as session:
        plan = session.plan({"do": "sql", "database": "shop", "statements": [statement], "mode": mode_of(statement)})
    assert ("read", f"databases/shop/main/{name}") in {(each.verb, each.resource) for each in plan.request.accesses}


def test_a_table_that_a_virtual_one_reads_while_it_runs_needs_a_grant(small: Shop):
    with contextlib.closing(apsw.Connection(small.settings.path)) as made:
        made.execute("CREATE VIRTUAL TABLE found USING fts5 (v, content = 'secret')")
    rebuild = {"do": "sql", "database": "shop", "statements": ["INSERT INTO found (found) VALUES ('rebuild')"]}
    with granting(small) as session:
        session.permissions.grant(
            Grant(resources=("databases/shop/main/found*",), verbs=("*",), minimum_guarantee=Guarantee.NONE)
        )
        with pytest.raises(NotPermitted, match="read 'databases/shop/main/secret'"):
            session.propose(rebuild)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE note SET t = 'x' WHERE id = 1",
        "INSERT INTO note (t) VALUES ('x')",
        "CREATE TABLE copy (a INTEGER PRIMARY KEY AUTOINCREMENT, b UNIQUE)",
        "CREATE TABLE copy AS SELECT t FROM note",
        "WITH c AS (SELECT t FROM note) INSERT INTO note (t) SELECT count(*) FROM c",
    ],
)
def test_what_is_not_read_needs_no_grant(small: Shop, statement: str):
    with granting(small) as session:
        done(session, statement, mode=mode_of(statement))


@pytest.mark.parametrize(
    "statement", ["DROP TABLE secret", "ALTER TABLE note ADD COLUMN u", "ALTER TABLE child RENAME TO kid"]
)
def test_a_definition_that_looks_at_the_schema_itself_reads_nothing(small: Shop, statement: str):
    with small.session() as session:
        plan = session.plan({"do": "sql", "database": "shop", "statements": [statement], "mode": "transaction"})
    assert not [each.resource for each in plan.request.accesses if "sqlite_" in each.resource]


def test_a_row_that_refers_depends_on_the_row_it_refers_to_and_not_on_its_table(small: Shop):
    with small.session() as session:
        first = done(session, "INSERT INTO parent VALUES (3, 'r')")
        done(session, "INSERT INTO child VALUES (1, 1)")
        session.undo(first)  # nobody needs it
        again = done(session, "INSERT INTO parent VALUES (3, 'r')")
        done(session, "INSERT INTO child VALUES (2, 3)")
        with pytest.raises(InputError, match="came later"):
            session.undo(again)


def test_a_row_named_in_another_spelling_of_its_key_is_the_same_row(small: Shop):
    with small.session() as session:
        first = done(session, "INSERT INTO note VALUES (7, 'seven')")
        done(session, "UPDATE note SET t = 'x' WHERE id IN ('7.0', 1) AND t <> 'seven'")
        with pytest.raises(InputError, match="came later"):
            session.undo(first)
