"""What is refused, with which reason, and what a model never gets to see."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import subprocess
import sys

import psycopg
import pytest
from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import open_engine
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.postgresql.engine import PostgresDatabase
from autoclave.runtime.databases.postgresql.role import Role
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from tests.postgresql import Postgres
from tests.runtime.databases.shops import CANARY, Shop, done, in_mariadb_too, session_on

OF_BOTH = [
    ("SELECT 1", "is no action"),
    ("SELECT * FROM item", "is no action"),
    ("", "is no action|holds 0 statements"),
    ("-- only words", "is no action|holds 0 statements"),
    ("SELECT 1; DROP TABLE item", "several|holds 2 statements|is no action"),
    ("DELETE FROM log; DELETE FROM item", "several|holds 2 statements"),
    ("DELETE FROM log;;; DELETE FROM item", "several|holds"),
    ("DELETE FROM log/*; */; COMMIT", "several|holds 2 statements"),
    ("BEGIN", "refused"),
    ("COMMIT", "refused"),
    ("ROLLBACK", "refused"),
    ("SAVEPOINT x", "refused"),
    ("/* SELECT */ COMMIT -- SELECT", "refused"),
    ("EXPLAIN DELETE FROM item", "is no action|another kind of statement"),
    ("DROP TABLE log", "transaction"),
    ("ALTER TABLE item ADD COLUMN x TEXT", "transaction"),
    ("CREATE TEMPORARY TABLE t (a int)", "temporary"),
    ("VACUUM", "is no action|another kind of statement"),
    ("ANALYZE", "let through|another kind of statement"),
    ("REINDEX", "let through|syntax error|another kind of statement"),
    ("DELETE FROM nothing_such", "no such table|there is no table"),
    ("DELETE FROM item WHERE absent = 1", "column"),
    ("NONSENSE", "syntax error"),
    ("DELETE FROM item WHERE name = 'never closed", "unterminated|unrecognized|syntax|refuses it"),
    ("DELETE FROM item WHERE \0 = 1", "."),
]
OF_SQLITE = [
    ("PRAGMA foreign_keys = OFF", "let through"),
    ("PRAGMA writable_schema = ON", "let through"),
    ("pragma /* */ journal_mode(DELETE)", "let through"),
    ("ATTACH 'x.db' AS x", "let through"),
    ("VACUUM INTO 'copy.db'", "is no action|let through"),
    ("DELETE FROM item WHERE load_extension('x')", "load_extension"),
    ("UPDATE item SET name = LOAD_EXTENSION('x', 'y')", "load_extension"),
    ("WITH a AS (SELECT load_extension('x')) DELETE FROM item WHERE id IN a", "load_extension"),
    ("UPDATE sqlite_master SET sql = 'x'", "may not be modified"),
    ("INSERT INTO words_data VALUES (1, x'00')", "may not be modified"),
    ("CREATE VIRTUAL TABLE more USING fts5 (t)", "no virtual tables"),
    ("CREATE TRIGGER t AFTER DELETE ON item BEGIN DELETE FROM log; END", "let through"),
    ("DROP TRIGGER item_log", "let through"),
]
OF_THEIR_OWN = """
CREATE FUNCTION told(log) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 'told'; END $$;
CREATE FUNCTION joined(text, text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 'joined'; END $$;
CREATE OPERATOR ### (leftarg = text, rightarg = text, function = joined);
CREATE TYPE wrapped AS (what text);
CREATE FUNCTION unwrapped(wrapped) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 'unwrapped'; END $$;
CREATE CAST (wrapped AS text) WITH FUNCTION unwrapped(wrapped) AS ASSIGNMENT;
CREATE VIEW telling AS SELECT told(log) AS what FROM log;
CREATE VIEW over_telling AS SELECT what FROM telling;
CREATE VIEW sleeping AS SELECT pg_sleep(0)::text AS what;
CREATE TABLE ruled (a int);
CREATE RULE rule AS ON INSERT TO ruled DO ALSO INSERT INTO log SELECT told(log), 1 FROM log;
ALTER TABLE log OWNER TO agent;
GRANT ALL ON telling, over_telling, sleeping, ruled TO agent
"""
CALLS = [
    "set_config('role', 'owner', false)", "pg_read_file('/etc/passwd')", "lo_import('/etc/passwd')", "lo_creat(-1)",
    "pg_sleep(100)", "pg_notify('a', 'b')", "pg_advisory_lock(1)", "query_to_xml('select 1', true, true, '')",
    "setval('review_id_seq', 1)", "table_to_xml('item', true, true, '')", "dblink_connect('x')", "lo_from_bytea(0, '')",
]  # fmt: skip
"""Functions of PostgreSQL's own that do more than give a value, or look at more than a statement says."""
OF_POSTGRESQL = [
    *((f"DELETE FROM item WHERE {call} IS NULL", f"pg_catalog.{call.partition('(')[0]}|undefined") for call in CALLS),
    ("WITH x AS (DELETE FROM hidden.secret RETURNING *) SELECT * FROM x", "there is no table hidden.secret"),
    ("INSERT INTO log SELECT text, 1 FROM hidden.secret", "there is no table hidden.secret"),
    ("INSERT INTO log SELECT rolname, 1 FROM pg_authid", "own catalogue"),
    ("CREATE TABLE pg_settings (name text, setting text)", "PostgreSQL's own catalogue"),
    ("INSERT INTO log SELECT (WITH pg_stats AS (SELECT 1) SELECT 'x'), 1 FROM pg_stats", "own catalogue"),
    ("INSERT INTO other.public.item VALUES (1)", "of another database"),
    ("SET ROLE owner", "another kind of statement"),
    ("DO $$ BEGIN DELETE FROM item; END $$", "another kind of statement"),
    ("COPY item TO PROGRAM 'cat'", "another kind of statement"),
    ("NOTIFY x, 'y'", "another kind of statement"),
    ("CREATE EXTENSION dblink", "another kind of statement"),
    ("CREATE FUNCTION f() RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'", "another kind"),
    ("SELECT * INTO copied FROM item", "is no action"),
    ("WITH x AS (DELETE FROM log RETURNING *) SELECT * INTO copied FROM x", "."),
    ("INSERT INTO log SELECT 'x', twice(1)", "public.twice"),
    ("WITH item AS (SELECT 1) DELETE FROM note", "its WITH is that of a table"),
    ("INSERT INTO log VALUES ('x', 1) -- \0", "NUL"),
    ("CREATE TABLE pg_temp.mine AS SELECT 1 AS a", 'mode "transaction"'),
    ("INSERT INTO pg_temp.mine VALUES (1)", "there is no table pg_temp.mine"),
    ("TRUNCATE hidden.secret", 'mode "transaction"'),
    ("UPDATE log SET what = log.told", "public.told"),
    ("UPDATE log SET what = what ### 'a'", "public.joined"),
    ("UPDATE log SET what = ROW(what)::wrapped::text", "public.unwrapped"),
    ("INSERT INTO log SELECT what, 1 FROM over_telling", "public.told"),
    ("INSERT INTO log SELECT 'x', 1 FROM sleeping", "pg_catalog.pg_sleep"),
    ("INSERT INTO ruled VALUES (1)", "has rules"),
    ("DELETE FROM day", "public/day: is partitioned"),
    ("INSERT INTO day_new VALUES ('2021-06-06', 'x')", "public/day_new: is partitioned, is a partition"),
    ('DELETE FROM "item" WHERE U&"\\0064" = 1', "column"),
]


def check_refused(shop: Shop, statements: list[tuple[str, str]]) -> None:
    before = shop.content()
    wrong: dict[str, str] = {}
    with shop.session() as session:
        for statement, reason in statements:
            try:
                wrong[statement] = done(session, statement)
            except InputError as error:
                if not re.search(reason, str(error)):
                    wrong[statement] = str(error)
        assert session.journal.standings() == []
    assert wrong == {}
    assert shop.content() == before


def test_what_is_no_action_or_cannot_be_taken_back_is_refused(shop: Shop):
    check_refused(shop, OF_BOTH)


def test_so_is_what_reaches_beyond_an_sqlite_file(sqlite_shop: Shop):
    check_refused(sqlite_shop, OF_SQLITE)


def test_so_is_what_reaches_beyond_the_tables_of_postgresql(postgres_shop: Shop):
    postgres_shop.others("CREATE FUNCTION twice(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT n * 2'")
    postgres_shop.others(OF_THEIR_OWN)
    check_refused(postgres_shop, OF_POSTGRESQL)


OF_HELD = [
    ("CREATE INDEX CONCURRENTLY i ON note (text)", "active sql transaction"),
    ("DROP TABLE log CASCADE", "CASCADE drops what"),
    ("ALTER TABLE log DROP COLUMN what CASCADE", "CASCADE drops what"),
    ("CREATE TABLE hidden.mine (a int)", "in none of the schemas"),
    ("CREATE TABLE pg_temp.mine (a int)", "in none of the schemas"),
    ("TRUNCATE hidden.secret", "there is no table hidden.secret"),
    ("CREATE SEQUENCE hidden.mine", "in none of the schemas"),
    ("ALTER TABLE hidden.secret ADD x int", "in none of the schemas"),
    ("CREATE TABLE copied AS SELECT what ### 'a' AS x FROM log", "public.joined"),
    ("CREATE INDEX telling_index ON log ((what ### 'a'))", "public.joined"),
    ("CREATE VIEW copied AS SELECT what ### 'a' AS x FROM log", "public.joined"),
    ("CREATE MATERIALIZED VIEW copied AS SELECT what ### 'a' AS x FROM log", "public.joined"),
    ("ALTER TABLE log ADD CHECK (what ### 'a' <> '')", "public.joined"),
]
OF_MORE_THAN_TABLES = [
    "DROP SCHEMA public",
    "ALTER SCHEMA public RENAME TO other",
    "ALTER TABLE log SET SCHEMA hidden",
    "GRANT ALL ON item TO PUBLIC",
    "GRANT EXECUTE ON FUNCTION log_it() TO PUBLIC",
    "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC",
    "COMMENT ON COLUMN log.what IS 'x'",
    "CREATE CAST (wrapped AS int) WITH INOUT",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION log_it() SECURITY DEFINER",
    "DROP FUNCTION log_it()",
    "CREATE TRIGGER t AFTER INSERT ON note FOR EACH ROW EXECUTE FUNCTION log_it()",
    "ALTER TRIGGER item_log ON item RENAME TO other",
    "DROP TRIGGER item_log ON item",
    "ALTER TABLE item DISABLE TRIGGER item_log",
    "ALTER TABLE item ADD more int, ENABLE ALWAYS TRIGGER item_log",
    "CREATE RULE r AS ON DELETE TO note DO INSTEAD NOTHING",
    "ALTER TABLE note DISABLE RULE r",
    "CREATE POLICY p ON note USING (false)",
    "ALTER TABLE note ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE note NO FORCE ROW LEVEL SECURITY",
]
"""Some of them run in the actions of others."""


def test_definitions_that_are_held_are_about_what_they_name_in_the_schemas(postgres_shop: Shop):
    postgres_shop.others(OF_THEIR_OWN)
    before = postgres_shop.content()
    with postgres_shop.session() as session:
        for statement, reason in [*OF_HELD, *((each, "let through") for each in OF_MORE_THAN_TABLES)]:
            with pytest.raises(InputError, match=reason):
                done(session, statement, mode="transaction")
    assert postgres_shop.content() == before


@pytest.mark.parametrize(
    ("statement", "defines"),
    [
        ("ALTER TABLE log RENAME TO elsewhere", ["elsewhere", "log"]),
        ("ALTER TABLE log RENAME what TO which", ["log"]),
        ("DROP TABLE log", ["log"]),
        ("DROP TABLE log, item", ["item", "log"]),
        ("CREATE INDEX ON log (id)", ["log"]),
    ],
)
def test_what_a_definition_is_about_must_be_permitted(postgres_shop: Shop, statement: str, defines: list[str]):
    with contextlib.closing(PostgresDatabase("shop", postgres_shop.settings, "")) as engine:
        reading = engine.read(Sql(database="shop", statements=(statement,)), Mode.TRANSACTION)
    assert sorted(reading.defines) == [f"public/{name}" for name in defines]


def test_functions_that_are_allowed_may_be_called_in_any_notation(postgres_shop: Shop):
    postgres_shop.others(OF_THEIR_OWN)
    allowed = ("public.told", "public.joined", "public.unwrapped")
    with postgres_shop.session(functions=allowed) as session:
        done(session, "INSERT INTO log SELECT 'x' ### 'y', 1", "UPDATE log SET what = log.told")
        done(session, "INSERT INTO log SELECT ROW('a')::wrapped::text, 2 FROM over_telling")
    assert postgres_shop.others("SELECT what FROM log ORDER BY id") == [("told",), ("unwrapped",)]


def test_functions_of_extensions_that_change_nothing_may_be_called(postgres_shop: Shop, server: Postgres):
    with psycopg.connect(**server.place("shop"), user="postgres", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector SCHEMA public")
        try:
            with postgres_shop.session() as session:
                done(session, "INSERT INTO log SELECT 'x', ('[1,2]'::vector <-> '[1,4]')::int")
        finally:
            connection.execute("DROP EXTENSION vector")
    assert postgres_shop.others("SELECT id FROM log") == [(2,)]


def test_rows_of_another_server_are_refused_in_both_modes(postgres_shop: Shop, server: Postgres):
    with psycopg.connect(**server.place("shop"), user="postgres", autocommit=True) as connection:
        connection.execute("CREATE FOREIGN DATA WRAPPER away; CREATE SERVER far FOREIGN DATA WRAPPER away")
        connection.execute("CREATE FOREIGN TABLE public.far (a int) SERVER far; GRANT ALL ON public.far TO agent")
        try:
            with postgres_shop.session() as session:
                for mode in ("images", "transaction"):
                    with pytest.raises(InputError, match="table public/far: is on another server"):
                        done(session, "DELETE FROM far", mode=mode)
        finally:
            connection.execute("DROP FOREIGN DATA WRAPPER away CASCADE")


@pytest.mark.parametrize("value", ["a\0b", "\0"])
def test_a_text_with_a_nul_is_refused_as_a_value(postgres_shop: Shop, value: str):
    with postgres_shop.session() as session, pytest.raises(InputError, match="a text has no NUL"):
        done(session, "INSERT INTO note VALUES ($1, 1)", parameters=[[value]])


def test_a_statement_of_any_depth_is_read_or_refused():
    """In a process of its own, which would be killed: the parser's stack is not the interpreter's."""
    program = (
        "from autoclave.core import InputError\n"
        "from autoclave.runtime.databases.postgresql.parsing import parsed\n"
        "for deep in ('+'.join(['1'] * 50_000), 'x' + '::int' * 30_000, '(' * 50_000 + '1' + ')' * 50_000):\n"
        "    try:\n"
        "        assert parsed(f'UPDATE note SET number = {deep}', 1).writes\n"
        "    except InputError:\n"
        "        pass\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr


def test_statements_are_read_in_any_number_of_threads_and_in_forks():
    """In a process of its own: one that runs out of keys of thread-local storage is aborted by what needs the next."""
    program = (
        "import os, threading\n"
        "from autoclave.runtime.databases.postgresql.parsing import parsed\n"
        "for _ in range(1100):\n"
        "    each = threading.Thread(target=parsed, args=('DELETE FROM note', 1))\n"
        "    each.start(); each.join()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(7 if parsed('DELETE FROM note', 1).writes else 0)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "import psycopg, numpy, ssl, sqlite3, apsw, jsonschema_rs\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr


# --- The role --------------------------------------------------------------------------------------------------------


OF_ROLE = [
    "SELECT * FROM hidden.secret",
    "SELECT * FROM pg_temp.autoclave_images",
    "DELETE FROM pg_temp.autoclave_images",
    'DROP TRIGGER "!autoclave insert" ON note',
    "ALTER TABLE item DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "COPY item TO PROGRAM 'cat'",
    "SELECT pg_read_file('/etc/passwd')",
    "CREATE TABLE hidden.more (a int)",
    "RESET ROLE",
    "SELECT set_config('role', 'none', true)",
    "SET SESSION AUTHORIZATION DEFAULT",
    "DO $$ BEGIN SET LOCAL ROLE NONE; DELETE FROM hidden.secret; SET LOCAL ROLE agent; END $$",
]


def test_the_role_cannot_reach_what_is_not_its_own_whatever_the_parser_lets_through(
    postgres_shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    """Here the statement is run in the middle of an action, without any look at it."""
    whole, more = Role.run, list[str]()

    def run(self: Role, text: str) -> None:
        whole(self, text)
        if text.startswith("EXECUTE "):
            whole(self, more[-1])

    before = postgres_shop.content()
    monkeypatch.setattr(Role, "run", run)
    with postgres_shop.session() as session:
        for statement in OF_ROLE:
            more.append(statement)
            with pytest.raises(InputError, match=r"42501|25001|42P01"):
                done(session, "DELETE FROM note")
    assert postgres_shop.content() == before


@pytest.mark.parametrize(
    ("role", "rule"), [("", "name a role"), ("nobody", "there is none"), ("owner", "may do every")]
)
def test_a_role_that_is_none_or_may_do_everything_is_refused(postgres_shop: Shop, role: str, rule: str):
    with postgres_shop.session(role=role) as session, pytest.raises(InputError, match=rule):
        done(session, "DELETE FROM note")


# --- Limits ----------------------------------------------------------------------------------------------------------


@in_mariadb_too
def test_more_rows_than_are_allowed_are_not_changed(shop: Shop):
    before = shop.content()
    with shop.session(max_rows=3) as session, pytest.raises(InputError, match="max_rows"):
        done(session, "UPDATE item SET price = 1")
    assert shop.content() == before


def test_more_bytes_than_are_allowed_are_not_kept(postgres_shop: Shop):
    before = postgres_shop.content()
    with postgres_shop.session(max_bytes=1000) as session:
        done(session, "UPDATE item SET photo = 'x'")
        before = postgres_shop.content()
        with pytest.raises(InputError, match=r"rows of \d+ bytes, more than 1000 \(max_bytes\)"):
            done(session, "INSERT INTO note SELECT repeat('x', 200), n FROM generate_series(1, 6) n")
    assert postgres_shop.content() == before


@in_mariadb_too
def test_cascades_count(shop: Shop):
    with shop.session(max_rows=4) as session, pytest.raises(InputError, match="max_rows"):
        done(session, "DELETE FROM kind WHERE name = 'book'")  # one kind, two items, two reviews


def test_what_the_planner_takes_for_little_is_stopped_while_it_runs(postgres_shop: Shop):
    postgres_shop.others("INSERT INTO note SELECT 'many', n FROM generate_series(1, 5000) n; ANALYZE note")
    before = postgres_shop.content()
    with (
        postgres_shop.session(max_rows=10) as session,
        pytest.raises(InputError, match="changes more rows than max_rows"),
    ):
        done(session, "UPDATE note SET text = 'few' WHERE number * 0 = 0")
    assert postgres_shop.content() == before


@in_mariadb_too
def test_a_statement_that_runs_too_long_is_ended(shop: Shop):
    slow = "INSERT INTO log SELECT 'x', count(*) FROM " + ", ".join(f"item i{number}" for number in range(14))
    with shop.session(statement_timeout_s=0.3) as session, pytest.raises(InputError, match="statement_timeout_s"):
        done(session, slow)


# --- Permission ------------------------------------------------------------------------------------------------------


@in_mariadb_too
def test_nothing_is_done_that_is_not_granted_cascades_included(shop: Shop):
    place = f"databases/shop/{shop.schema}"
    before = shop.content()
    with session_on({"shop": shop.settings}, shop.state, granted=False) as session:
        with pytest.raises(NotPermitted):
            done(session, "DELETE FROM kind WHERE name = 'book'")
        session.permissions.grant(Grant(resources=(f"{place}/*",), verbs=("read",)))
        session.permissions.grant(Grant(resources=(f"{place}/kind",), verbs=("delete", "create")))
        with pytest.raises(NotPermitted, match=f"delete '{place}/item'"):
            done(session, "DELETE FROM kind WHERE name = 'book'")
        done(session, "INSERT INTO kind (name) VALUES ('more')")
        session.permissions.grant(Grant(resources=(f"{place}/note",), verbs=("delete",), max_rows=2))
        with pytest.raises(NotPermitted):
            done(session, "DELETE FROM note WHERE text = 'x'")
    assert len(shop.content()["kind"]) - len(before["kind"]) == 1


# --- What a model sees -----------------------------------------------------------------------------------------------

CARELESS = [
    "INSERT INTO item (id, name) SELECT 10, name FROM item WHERE name LIKE 'canary%'",
    "INSERT INTO item (id, name, price) VALUES (11, 'x', -1)",
    "UPDATE item SET kind = name",
    "UPDATE item SET id = 1",
    "UPDATE item SET price = price / 0, name = NULL",
    "UPDATE review SET item = 1000",
    "UPDATE item SET price = CAST(name AS INTEGER) / 0 WHERE id = 4",
    "UPDATE place SET row = item",
    "DELETE FROM item WHERE name = (SELECT name FROM item)",
    "UPDATE sum_of SET total = 5",
    "INSERT INTO sum_of (a, b) SELECT 9, name FROM item WHERE id = 4",
    "UPDATE item SET photo = EXP(710) WHERE id = 4",
    "UPDATE mood SET mood = (SELECT text FROM review WHERE id = 3)",
]


@in_mariadb_too
def test_no_value_of_a_row_is_told_to_a_model(shop: Shop, opened: Session, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    shop.others(f"UPDATE kind SET note = '{CANARY}'")
    texts = [opened.told()]
    for statement in CARELESS:
        try:
            plan = opened.plan({"do": "sql", "database": "shop", "statements": [statement]})
            texts += [*plan.changes, json.dumps(plan.output)]
        except (InputError, HostError) as error:
            texts += [str(error), repr(error), str(error.__cause__), str(getattr(error, "hint", ""))]
    texts += [record.getMessage() for record in caplog.records]
    assert "item" in texts[0]
    assert "price" in texts[0]
    assert [text for text in texts if "canary" in text] == []


def test_no_statement_is_logged(sqlite_shop: Shop, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    with sqlite_shop.session() as session:
        done(session, "REPLACE INTO note VALUES ('words of a model', 1)")
    assert "words of a model" not in caplog.text


def test_errors_say_what_is_wrong_with_which_column(shop: Shop, opened: Session):
    with pytest.raises(InputError, match=r"item.name|item_name_key"):
        done(opened, "INSERT INTO item (id, name) VALUES (9, 'a')")
    with pytest.raises(InputError, match=r"NOT NULL constraint failed: item.name|table item, column name"):
        done(opened, "INSERT INTO item (id, name) VALUES (9, NULL)")


def test_a_password_in_the_settings_is_no_setting():
    with pytest.raises(ValidationError, match="password"):
        DatabaseConnection.model_validate({"engine": "postgresql", "dbname": "x", "password": "y"})


@pytest.mark.parametrize(
    ("engine", "missing"),
    [
        ("sqlite", "apsw"),
        ("sqlite", "sqlglot"),
        ("postgresql", "pglast"),
        ("postgresql", "psycopg"),
        ("mariadb", "pymysql"),
        ("redis", "redis"),
    ],
)
def test_what_is_not_installed_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch, engine: str, missing: str):
    settings = DatabaseConnection(engine=engine, **({"path": "x"} if engine == "sqlite" else {"dbname": "x"}))
    for name in [each for each in sys.modules if each.startswith(f"autoclave.runtime.databases.{engine}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(HostError, match=rf"{missing} is not installed here. Fix: pip install .*\[databases\]"):
        open_engine("here", settings, "")


def test_an_engine_that_is_none_is_no_setting():
    with pytest.raises(ValidationError, match="'sqlite', 'postgresql', 'mariadb' or 'redis'"):
        DatabaseConnection.model_validate({"engine": "oracle", "path": "x"})


@in_mariadb_too
def test_all_is_done_or_nothing(shop: Shop, opened: Session):
    before = shop.content()
    with pytest.raises(InputError):
        done(opened, "UPDATE item SET price = 0", "INSERT INTO item (id, name) VALUES (1, 'again')")
    assert shop.content() == before


@in_mariadb_too
def test_what_changes_nothing_is_no_action(shop: Shop, opened: Session):
    with pytest.raises(InputError, match="change nothing as it is now"):
        done(opened, "DELETE FROM item WHERE id = 1000")
