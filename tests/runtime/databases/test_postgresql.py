"""What PostgreSQL does besides what a statement says is seen, and nothing runs with more rights than the role's."""

from __future__ import annotations

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from tests.postgresql import Postgres
from tests.runtime.databases.shops import Shop, changed, done, permitted
from tests.runtime.databases.test_images import check_both_ways

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


EMPTIES = """
CREATE TABLE cache (text text); INSERT INTO cache VALUES ('kept'); INSERT INTO hidden.secret VALUES ('kept');
CREATE FUNCTION empties() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    TRUNCATE {table}; RETURN NULL; END $$;
CREATE TRIGGER empties AFTER INSERT ON note FOR EACH STATEMENT EXECUTE FUNCTION empties()
"""


# --- Emptied ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "mode", "rule"),
    [
        ("public.cache", "images", "empties tables that no statement names: public/cache"),
        ("public.cache", "transaction", "empties tables that no statement names: public/cache"),
        ("hidden.secret", "images", "outside of its schemas: hidden/secret"),
        ("hidden.secret", "transaction", "outside of its schemas: hidden/secret"),
        ("public.cache", "transaction and define", "empties tables that no statement names: public/cache"),
        ("hidden.secret", "transaction and define", "outside of its schemas: hidden/secret"),
    ],
)
def test_what_a_trigger_empties_beyond_what_is_looked_at_is_not_done(
    postgres_shop: Shop, table: str, mode: str, rule: str
):
    postgres_shop.others(EMPTIES.format(table=table))
    before = postgres_shop.content()
    more = ["CREATE TABLE mine (a int)"] if "define" in mode else []
    with postgres_shop.session() as session, pytest.raises(InputError, match=rule):
        done(session, *more, "INSERT INTO note VALUES ('x', 1)", mode=mode.split()[0])
    assert postgres_shop.content() == before


@pytest.mark.parametrize("mode", ["images", "transaction"])
@pytest.mark.parametrize(
    "defines", ["CREATE TABLE public.mine (a int)", "ALTER TABLE public.log ADD more int", "DROP VIEW public.odd"]
)
def test_what_a_trigger_defines_is_not_done(postgres_shop: Shop, defines: str, mode: str):
    postgres_shop.others(EMPTIES.format(table="public.cache").replace("TRUNCATE public.cache", defines))
    before = postgres_shop.content()
    with postgres_shop.session() as session, pytest.raises(InputError, match="defines what no statement says"):
        done(session, "INSERT INTO note VALUES ('x', 1)", mode=mode)
    assert postgres_shop.content() == before


# --- Counted where tables are redefined ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM kind WHERE name = 'book'", "TRUNCATE kind CASCADE", "UPDATE kind SET name = 'x' WHERE name = 'toy'"],
)
def test_cascades_need_permission_also_beside_a_definition(postgres_shop: Shop, statement: str):
    before = postgres_shop.content()
    verbs = ("read", "delete", "modify", "define")
    with permitted(postgres_shop, "kind", "mine", verbs=verbs) as session, pytest.raises(NotPermitted, match="item"):
        done(session, "CREATE TABLE mine (a int)", statement, mode="transaction")
    assert postgres_shop.content() == before


def test_what_is_counted_is_told_and_can_be_committed(postgres_shop: Shop):
    with postgres_shop.session() as session:
        proposal = session.propose(
            {
                "do": "sql", "database": "shop", "mode": "transaction",
                "statements": ["ALTER TABLE review ADD more int", "DELETE FROM kind WHERE name = 'book'"],
            }
        )  # fmt: skip
        assert {"delete 2 rows of shop/public/item", "modify 2 rows of shop/public/review"} <= {*proposal.plan.changes}
        session.run(proposal.action, proposal.plan.digest)
        session.commit(proposal.action)
    assert postgres_shop.others("SELECT count(*) FROM item") == [(2,)]


# --- Sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["INCREMENT -1", "MAXVALUE 3 CYCLE", "INCREMENT -1 MINVALUE -3 CYCLE"])
def test_numbers_that_others_drew_are_not_drawn_again(postgres_shop: Shop, how: str):
    postgres_shop.others(
        f"CREATE SEQUENCE s {how}; GRANT ALL ON s TO agent; CREATE TABLE t (a int DEFAULT nextval('s'), x text);"
        "GRANT ALL ON t TO agent; INSERT INTO t (x) VALUES ('one'), ('two'), ('three')"
    )
    with postgres_shop.session() as session:
        proposal = session.propose(
            {"do": "sql", "database": "shop", "statements": ["INSERT INTO t (x) VALUES ('ours')"]}
        )
        assert proposal.plan.guarantee is Guarantee.EQUIVALENT
        session.run(proposal.action, proposal.plan.digest)
        postgres_shop.others("INSERT INTO t (x) VALUES ('theirs')")
        stood = postgres_shop.others("SELECT last_value, is_called FROM s")
        session.undo(proposal.action)
        assert postgres_shop.others("SELECT last_value, is_called FROM s") == stood


# --- Counters of the server ------------------------------------------------------------------------------------------


def test_a_server_that_counts_no_rows_is_not_worked_on(postgres_shop: Shop, server: Postgres):
    off, back = "ALTER DATABASE shop SET track_counts = off", "ALTER DATABASE shop RESET track_counts"
    with (
        changed(server.execute, off, back),
        postgres_shop.session() as session,
        pytest.raises(HostError, match="track_counts = on"),
    ):
        done(session, "DELETE FROM note")


# --- What fills itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO review VALUES (DEFAULT, 1, 'x')",
        "INSERT INTO review DEFAULT VALUES",
        "INSERT INTO review (id, text) VALUES (DEFAULT, 'x')",
        "INSERT INTO always OVERRIDING USER VALUE VALUES (7, 'x')",
        "UPDATE review SET id = DEFAULT WHERE id = 1",
        "MERGE INTO review USING (VALUES (77)) v (a) ON id = a WHEN NOT MATCHED THEN INSERT (text) VALUES ('x')",
        "WITH x AS (INSERT INTO review (text) VALUES ('a')) INSERT INTO log VALUES ('b', 1)",
    ],
)
def test_rows_that_number_themselves_are_done_and_taken_back(postgres_shop: Shop, statement: str):
    check_both_ways(postgres_shop, [statement])


NOT_VALID = "ALTER TABLE note ADD CONSTRAINT c CHECK (text <> 'y') NOT VALID"
EXCHANGED = """
CREATE TABLE coded (id int PRIMARY KEY, code text UNIQUE, more text);
CREATE TABLE using_it (coded int REFERENCES coded ON DELETE {does} ON UPDATE {does});
INSERT INTO coded VALUES (1, 'a'), (2, 'b'), (3, 'c'); INSERT INTO using_it VALUES (1), (2);
GRANT ALL ON coded, using_it TO agent
"""
EXCHANGE = [f"UPDATE coded SET code = '{code}' WHERE id = {number}" for code, number in (("t", 1), ("a", 2), ("b", 1))]


def check_refused(shop: Shop, *statements: str) -> None:
    """Refused when it is planned, with nothing changed; and the mode that is named takes it back."""
    before = shop.content()
    with shop.session() as session:
        with pytest.raises(InputError, match='mode "transaction" takes it back'):
            session.propose({"do": "sql", "database": "shop", "statements": list(statements)})
        assert shop.content() == before
        action = done(session, *statements, mode="transaction")
        session.undo(action)
    assert shop.content() == before


def check_undone(shop: Shop, *statements: str) -> None:
    before = shop.content()
    with shop.session() as session:
        action = done(session, *statements)
        assert shop.content() != before
        session.undo(action)
    assert shop.content() == before


def test_a_row_that_meets_a_constraint_no_more_is_not_taken_away(postgres_shop: Shop):
    postgres_shop.others(NOT_VALID)
    check_refused(postgres_shop, "DELETE FROM note WHERE text = 'y'")
    check_refused(postgres_shop, "UPDATE note SET text = 'x' WHERE text = 'y'")
    check_undone(postgres_shop, "DELETE FROM note WHERE text = 'x'")


def test_nor_is_one_that_refers_to_what_is_not_there(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE TABLE lost (id int PRIMARY KEY, item int); INSERT INTO lost VALUES (1, 77), (2, 1);"
        "ALTER TABLE lost ADD FOREIGN KEY (item) REFERENCES item NOT VALID; GRANT ALL ON lost TO agent"
    )
    check_refused(postgres_shop, "DELETE FROM lost WHERE id = 1")
    check_undone(postgres_shop, "DELETE FROM lost WHERE id = 2")


def test_unique_values_are_not_exchanged_where_rows_must_not_go_for_a_while(postgres_shop: Shop):
    postgres_shop.others(EXCHANGED.format(does="RESTRICT"))
    check_refused(postgres_shop, *EXCHANGE)
    check_undone(postgres_shop, "UPDATE coded SET more = 'x'", "UPDATE coded SET code = code || 'x'")


def test_where_they_may_they_are(postgres_shop: Shop):
    postgres_shop.others(EXCHANGED.format(does="NO ACTION"))
    check_undone(postgres_shop, *EXCHANGE)


def test_rows_that_the_user_may_not_see_are_not_changed(postgres_shop: Shop):
    postgres_shop.others("ALTER TABLE note ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON note USING (true)")
    check_undone(postgres_shop, "DELETE FROM note WHERE text = 'x'")
    postgres_shop.others("ALTER TABLE note FORCE ROW LEVEL SECURITY")
    with (
        postgres_shop.session() as session,
        pytest.raises(InputError, match="its row security is forced upon the user"),
    ):
        done(session, "DELETE FROM note WHERE text = 'x'")


@pytest.mark.parametrize("engine", ["sqlite", "mariadb"])
def test_a_row_that_meets_a_check_no_more_comes_back(request: pytest.FixtureRequest, engine: str):
    shop: Shop = request.getfixturevalue(f"{engine}_shop")
    off = "PRAGMA ignore_check_constraints = 1" if engine == "sqlite" else "SET check_constraint_checks = 0"
    shop.others(f"{off}; CREATE TABLE odd (id int PRIMARY KEY, v int CHECK (v > 0)); INSERT INTO odd VALUES (1, -1)")
    with shop.session() as session:
        for statement in ("DELETE FROM odd WHERE id = 1", "UPDATE odd SET v = 1 WHERE id = 1"):
            action = done(session, statement)
            session.undo(action)
            assert [int(v) for (v,) in shop.others("SELECT v FROM odd")] == [-1]
        with pytest.raises(InputError, match=r"(?i)constraint failed"):
            done(session, "INSERT INTO odd VALUES (2, -2)")
