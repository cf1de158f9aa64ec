"""What PostgreSQL does besides what a statement says is seen: it comes back, or nothing is done."""

from __future__ import annotations

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.grants import Grant
from tests.postgresql import Postgres
from tests.runtime.databases.shops import Shop, changed, done, session_on
from tests.runtime.databases.test_images import check_both_ways

EMPTIES = """
CREATE TABLE cache (text text); INSERT INTO cache VALUES ('kept'); INSERT INTO hidden.secret VALUES ('kept');
CREATE FUNCTION empties() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    TRUNCATE {table}; RETURN NULL; END $$;
CREATE TRIGGER empties AFTER INSERT ON note FOR EACH STATEMENT EXECUTE FUNCTION empties()
"""
FIRES = """
CREATE TABLE fired (what text);
CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO public.fired VALUES (TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER fires AFTER INSERT OR UPDATE OR DELETE ON day FOR EACH ROW EXECUTE FUNCTION fires()
"""


def permitted(shop: Shop, *resources: str, verbs: tuple[str, ...]):
    """A session that may do these things alone."""
    session = session_on({"shop": shop.settings}, shop.state, granted=False)
    names = tuple(f"databases/shop/public/{name}" for name in resources)
    session.permissions.grant(Grant(resources=names, verbs=verbs, minimum_guarantee=Guarantee.NONE))
    return session


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


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM day", "INSERT INTO day VALUES ('2019-05-05', 'again'), ('2022-01-01', 'more')"],
        ["UPDATE day SET text = 'x'", "DELETE FROM day_new", "INSERT INTO day_new VALUES ('2021-05-05', 'y')"],
        ["UPDATE day SET text = 'x'", "UPDATE day_old SET text = 'y'", "DELETE FROM day WHERE text = 'x'"],
        ["UPDATE day SET on_day = '2021-06-06' WHERE text = 'old'", "UPDATE day_new SET text = 'moved'"],
    ],
)
def test_rows_of_partitions_come_back_once_each(postgres_shop: Shop, statements: list[str]):
    check_both_ways(postgres_shop, statements)


def test_a_partition_with_its_columns_in_another_order_is_told_as_the_whole(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE TABLE p (a int PRIMARY KEY, x text, y int) PARTITION BY RANGE (a);"
        "CREATE TABLE p1 (y int, x text, gone int, a int NOT NULL); ALTER TABLE p1 DROP COLUMN gone;"
        "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 'x', 2), (2, 'y', 3);"
        "GRANT ALL ON p, p1 TO agent"
    )
    before = postgres_shop.content()
    with postgres_shop.session() as session:
        action = done(session, "UPDATE p1 SET y = 7 WHERE a = 1", "UPDATE p SET x = 'z'", "DELETE FROM p1")
        session.undo(action)
    assert postgres_shop.content() == before


def test_who_may_change_a_partition_must_be_allowed_to_change_the_whole(postgres_shop: Shop):
    with permitted(postgres_shop, "day_old", verbs=("*",)) as session, pytest.raises(NotPermitted, match="public/day'"):
        done(session, "UPDATE day_old SET text = 'x'")


# --- Counted where tables are defined anew ---------------------------------------------------------------------------


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


# --- Triggers of partitions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["DISABLE", "ENABLE ALWAYS", "ENABLE"])
def test_triggers_of_partitions_do_not_fire_for_an_undo_and_are_as_they_were(postgres_shop: Shop, state: str):
    postgres_shop.others(f"{FIRES}; ALTER TABLE day_old {state} TRIGGER fires")
    before = postgres_shop.content()
    with postgres_shop.session() as session:
        for table in ("day", "day_old"):
            action = done(session, f"UPDATE {table} SET text = 'x'")
            session.undo(action)
            assert postgres_shop.content() == before


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


def test_a_sequence_of_another_schema_is_told(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE SEQUENCE hidden.s; GRANT USAGE ON SCHEMA hidden TO agent; GRANT USAGE ON hidden.s TO agent"
    )
    with postgres_shop.session() as session:
        proposal = session.propose(
            {"do": "sql", "database": "shop", "statements": ["INSERT INTO log VALUES ('x', nextval('hidden.s'))"]}
        )
    assert proposal.plan.guarantee is Guarantee.EQUIVALENT
    assert any("sequence hidden/s has drawn" in line for line in proposal.plan.changes)


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
