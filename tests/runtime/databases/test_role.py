"""What runs as the role of PostgreSQL cannot become anybody else, and nothing that it sets outlives it."""

from __future__ import annotations

import pytest

from autoclave.core import HostError, InputError
from tests.postgresql import Postgres
from tests.runtime.databases.shops import Shop, changed, done

BECOMES = """
CREATE FUNCTION trick() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    {tries}
    INSERT INTO hidden.secret VALUES ('by the user');
    PERFORM set_config('role', 'agent', true);
    RETURN NULL; END $$;
CREATE TRIGGER trick AFTER INSERT ON note FOR EACH STATEMENT EXECUTE FUNCTION trick()
"""
SETS = """
CREATE FUNCTION sets() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    PERFORM set_config('{name}', '{value}', false); RETURN 1; END $$
"""


@pytest.mark.parametrize("mode", ["images", "transaction"])
@pytest.mark.parametrize(
    "tries",
    [
        "PERFORM set_config('role', 'none', true);",
        "SET LOCAL ROLE owner;",
        "SET SESSION AUTHORIZATION DEFAULT;",
        "RESET ALL; EXECUTE 'RESET ROLE';",
    ],
)
def test_a_trigger_does_not_become_the_user_for_a_while(postgres_shop: Shop, tries: str, mode: str):
    postgres_shop.others(BECOMES.format(tries=tries))
    before = postgres_shop.content()
    with postgres_shop.session() as session, pytest.raises(InputError, match="42501"):
        done(session, "INSERT INTO note VALUES ('x', 1)", mode=mode)
    assert postgres_shop.content() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("standard_conforming_strings", "off"),
        ("search_path", "hidden"),
        ("datestyle", "SQL, DMY"),
        ("statement_timeout", "0"),
        ("synchronous_commit", "off"),
        ("default_transaction_read_only", "on"),
        ("array_nulls", "off"),
        ("some.thing", "else"),
    ],
)
def test_what_a_function_sets_ends_with_its_statement(postgres_shop: Shop, name: str, value: str):
    postgres_shop.others(SETS.format(name=name, value=value))
    with postgres_shop.session(functions=("public.sets",)) as session:
        action = done(session, "INSERT INTO log SELECT 'x', sets()", r"INSERT INTO note VALUES ('a\', 1)")
        done(session, "INSERT INTO place VALUES ('C', 1, 'q')")
        engine = session.actions.managers["sql"]._databases.engine("shop")  # type: ignore[attr-defined]
        (now,) = engine.connection.execute("SELECT current_setting(%s, true)", (name,)).fetchone()
        session.undo(action)
    ((usual,),) = postgres_shop.others(f"SELECT current_setting('{name}', true)")
    assert (now or None) == usual
    assert postgres_shop.others("SELECT item FROM place WHERE shelf = 'C'") == [("q",)]


def test_a_role_that_alters_how_it_is_run_ends_the_action(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE FUNCTION alters() RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
        "ALTER FUNCTION pg_temp.autoclave_role(text) SECURITY INVOKER; RETURN 1; END $$"
    )
    before = postgres_shop.content()
    with postgres_shop.session(functions=("public.alters",)) as session:
        for mode in ("images", "transaction"):
            with pytest.raises(HostError, match="changed how they are run"):
                done(session, "INSERT INTO log SELECT 'x', alters()", "DELETE FROM note", mode=mode)
    assert postgres_shop.content() == before


def test_a_role_that_may_switch_triggers_off_or_make_nothing_temporary_is_refused(
    postgres_shop: Shop, server: Postgres
):
    switching = "SET ON PARAMETER session_replication_role"
    making = "TEMPORARY ON DATABASE shop"
    for change, back, rule in (
        (f"GRANT {switching} TO agent", f"REVOKE {switching} FROM agent", "may do everything"),
        (f"REVOKE {making} FROM PUBLIC", f"GRANT {making} TO PUBLIC", f"GRANT {making}"),
    ):
        with (
            changed(server.execute, change, back),
            postgres_shop.session() as session,
            pytest.raises(InputError, match=rule),
        ):
            done(session, "DELETE FROM note")


@pytest.mark.parametrize(
    "silences",
    [
        "ALTER TABLE review DISABLE TRIGGER USER; DELETE FROM review; ALTER TABLE review ENABLE TRIGGER USER",
        'DROP TRIGGER "!autoclave delete" ON review; DELETE FROM review WHERE id = 1',
        "CREATE TEMPORARY TABLE mine (LIKE review); CREATE TRIGGER more AFTER INSERT ON mine REFERENCING NEW TABLE AS "
        "autoclave_come EXECUTE FUNCTION pg_temp.autoclave_hear('0', '', 'DELETE FROM item'); "
        "INSERT INTO mine TABLE review; DROP TABLE mine",
    ],
)
def test_who_owns_a_table_does_not_switch_off_what_listens_to_it(postgres_shop: Shop, silences: str):
    calls = "; ".join(f"EXECUTE $q${each}$q$" for each in silences.split("; "))
    postgres_shop.others(
        f"CREATE FUNCTION silences() RETURNS text LANGUAGE plpgsql AS $$ BEGIN {calls}; RETURN 'x'; END $$"
    )
    before = postgres_shop.content()
    with (
        postgres_shop.session(functions=("public.silences",)) as session,
        pytest.raises(InputError, match=r"triggers that tell|42501"),
    ):
        done(
            session,
            "DELETE FROM log",
            "INSERT INTO review (text) VALUES ('y')",
            "INSERT INTO log VALUES (silences(), 1)",
        )
    assert postgres_shop.content() == before


def test_a_temporary_table_of_a_function_is_gone_with_its_action(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE FUNCTION leaves() RETURNS int LANGUAGE plpgsql AS $$ BEGIN "
        "EXECUTE 'CREATE TEMPORARY TABLE item (a int)'; RETURN 1; END $$"
    )
    with postgres_shop.session(functions=("public.leaves",)) as session:
        for _ in range(2):
            done(session, "INSERT INTO log SELECT 'x', leaves()")


def test_policies_of_rows_hold_for_the_role_and_rows_come_back(postgres_shop: Shop):
    postgres_shop.others(
        "ALTER TABLE note ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY ones ON note TO agent USING (number = 1) WITH CHECK (number < 9)"
    )
    before = postgres_shop.content()
    with postgres_shop.session() as session:
        action = done(session, "UPDATE note SET number = 2")
        assert postgres_shop.others("SELECT count(*) FROM note WHERE text IS NULL AND number IS NULL") == [(1,)]
        assert postgres_shop.others("SELECT count(*) FROM note WHERE number = 2") == [(4,)]
        session.undo(action)
        assert postgres_shop.content() == before
        with pytest.raises(InputError, match="42501"):
            done(session, "INSERT INTO note VALUES ('too much', 10)")


def test_values_beside_a_statement_are_values(postgres_shop: Shop):
    values = ['it\'s \\ $1 "x"', -5, 2**40, 1.5, None, True]
    with postgres_shop.session() as session:
        action = done(
            session,
            "INSERT INTO note SELECT $1 || ($2::int8 + $3)::text || ($4 * 2)::text "
            "|| ($6 AND $5::text IS NULL)::text, $2",
            parameters=[values],
        )
        assert postgres_shop.others("SELECT text FROM note WHERE number = -5") == [
            ('it\'s \\ $1 "x"' + f"{2**40 - 5}" + "3.0" + "true",)
        ]
        session.undo(action)
        action = done(session, "INSERT INTO note VALUES ($1, $2)", parameters=[["exact", 0.12345678901234568]])
        assert postgres_shop.others("SELECT number::text FROM note WHERE text = 'exact'") == [("0.12345678901234568",)]
        session.undo(action)
        with pytest.raises(InputError, match="values beside it are for statements on rows"):
            done(session, "TRUNCATE log", parameters=[[1]])
