"""What PostgreSQL does besides what a statement says is seen: it comes back, or nothing is done."""

from __future__ import annotations

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from tests.postgresql import Postgres
from tests.runtime.databases.shops import Shop, changed, done, permitted
from tests.runtime.databases.test_images import check_both_ways

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
