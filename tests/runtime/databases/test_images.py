"""Actions in the mode `images`: every row that statements change is put back exactly, and brought again."""

from __future__ import annotations

import pytest

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.databases.shops import Shop, done, in_mariadb_too

IN_BOTH = {
    "insert": ["INSERT INTO kind (name) VALUES ('new')"],
    "insert many": ["INSERT INTO place (shelf, row) VALUES ('C', 1), ('C', 2), ('D', 1)"],
    "update one": ["UPDATE item SET price = 1 WHERE id = 3"],
    "update many, and a trigger logs it": ["UPDATE item SET price = price * 2 WHERE kind = 'book'"],
    "delete one": ["DELETE FROM review WHERE id = 1"],
    "delete all": ["DELETE FROM place"],
    "several": [
        "INSERT INTO kind (name) VALUES ('k')",
        "UPDATE item SET kind = 'k'",
        "DELETE FROM kind WHERE name = 'toy'",
    ],
    "there and back": ["UPDATE place SET item = 'z' WHERE item = 'a'", "INSERT INTO note VALUES ('new', 1)"],
    "upsert": ["INSERT INTO kind VALUES ('toy', 'u') ON CONFLICT (name) DO UPDATE SET note = 'seen' RETURNING name"],
    "insert from select": ["INSERT INTO log SELECT name, id FROM item WHERE price > 3"],
    "update from": [
        "UPDATE item SET price = r.n FROM (SELECT item, count(*) AS n FROM review GROUP BY item) AS r "
        "WHERE r.item = item.id"
    ],
    "with": ["WITH few AS (SELECT id FROM item WHERE price > 100) DELETE FROM item WHERE id IN (SELECT id FROM few)"],
    "returning": ["DELETE FROM note WHERE text = 'y' RETURNING *"],
    "cascade of deletes": ["DELETE FROM kind WHERE name = 'book'"],
    "cascade of updates": ["UPDATE kind SET name = 'boek' WHERE name = 'book'"],
    "references set to null": ["DELETE FROM item WHERE id = 1"],
    "a table that refers to itself": ["DELETE FROM part WHERE id = 1"],
    "equal rows without a key": ["DELETE FROM note WHERE number = 1"],
    "a row of nulls": ["DELETE FROM note WHERE text IS NULL"],
    "keys of several columns": ["UPDATE place SET row = row + 10"],
    "keys that are swapped": [
        "UPDATE place SET row = 99 WHERE shelf = 'A' AND row = 1",
        "UPDATE place SET row = 1 WHERE shelf = 'A' AND row = 2",
        "UPDATE place SET row = 2 WHERE shelf = 'A' AND row = 99",
    ],
    "unique values that are swapped": [
        "UPDATE item SET name = 'x' WHERE id = 1",
        "UPDATE item SET name = 'a' WHERE id = 2",
        "UPDATE item SET name = 'b' WHERE id = 1",
    ],
    "a key that is given again": [
        "DELETE FROM item WHERE id = 4",
        "INSERT INTO item VALUES (4, 'other', 1, 'toy', NULL)",
    ],
    "computed columns": ["UPDATE sum_of SET b = 9", "INSERT INTO sum_of (a, b) VALUES (5, 5)"],
    "numbers that count up": ["INSERT INTO review (item, text) VALUES (1, 'x')"],
}
IN_SQLITE = {
    "replace, which deletes another row too": ["REPLACE INTO item VALUES (1, 'b', 1, 'toy', NULL)"],
    "a view with a trigger": ["UPDATE dear SET price = 500"],
    "words that are added": ["INSERT INTO words VALUES ('a new fox')"],
    "words that are removed": ["DELETE FROM words WHERE words MATCH 'fox'"],
    "a type that changes, but no value": [
        "UPDATE note SET number = CAST(number AS REAL) WHERE typeof(number) = 'integer'"
    ],
}
IN_POSTGRESQL = {
    "a view that can be written": ["UPDATE dear SET price = 500"],
    "a view with a trigger": ["UPDATE odd SET price = 7 WHERE id = 1"],
    "a WITH that writes": [
        "WITH gone AS (DELETE FROM note WHERE text = 'x' RETURNING *) INSERT INTO log SELECT 'gone', count(*) FROM gone"
    ],
    "merge": [
        "MERGE INTO kind k USING (VALUES ('toy'), ('new')) v (n) ON k.name = v.n "
        "WHEN MATCHED THEN UPDATE SET note = 'm' WHEN NOT MATCHED THEN INSERT (name) VALUES (v.n)"
    ],
    "references in a circle, brought": [
        "INSERT INTO hen VALUES (2, NULL)",
        "INSERT INTO egg VALUES (2, 2)",
        "UPDATE hen SET egg = 2 WHERE id = 2",
    ],
    "references in a circle, taken away": [
        "UPDATE hen SET egg = NULL WHERE id = 1",
        "DELETE FROM egg WHERE id = 1",
        "DELETE FROM hen WHERE id = 1",
    ],
    "identities that are always given, new": ["INSERT INTO always (text) VALUES ('three')"],
    "identities that are always given, gone": ["DELETE FROM always WHERE id = 1"],
}


IN_MARIADB = {
    **IN_BOTH,
    "upsert": ["INSERT INTO kind VALUES ('toy', 'u') ON DUPLICATE KEY UPDATE note = 'seen'"],
    "update from": ["UPDATE item SET price = (SELECT count(*) FROM review r WHERE r.item = item.id)"],
    "with": ["DELETE FROM item WHERE id IN (WITH few AS (SELECT id FROM item WHERE price > 100) SELECT id FROM few)"],
}


def check_both_ways(shop: Shop, statements: list[str]) -> None:
    before = shop.content()
    with shop.session() as session:
        action = done(session, *statements)
        after = shop.content()
        assert after != before
        assert session.undo(action) == [action]
        assert shop.content() == before
        session.redo(action)
        assert shop.content() == after
        session.undo(action)
        assert shop.content() == before
        assert session.journal.standing(action).state is ActionState.UNDONE
        assert session.audit() == []


@pytest.mark.parametrize("statements", IN_BOTH.values(), ids=IN_BOTH)
def test_what_was_done_is_taken_back_exactly_and_done_again(shop: Shop, statements: list[str]):
    check_both_ways(shop, statements)


@pytest.mark.parametrize("statements", IN_MARIADB.values(), ids=IN_MARIADB)
def test_so_it_is_in_mariadb(mariadb_shop: Shop, statements: list[str]):
    check_both_ways(mariadb_shop, statements)


@pytest.mark.parametrize("statements", IN_SQLITE.values(), ids=IN_SQLITE)
def test_so_is_what_only_sqlite_does(sqlite_shop: Shop, statements: list[str]):
    check_both_ways(sqlite_shop, statements)


@pytest.mark.parametrize("statements", IN_POSTGRESQL.values(), ids=IN_POSTGRESQL)
def test_so_is_what_only_postgresql_does(postgres_shop: Shop, statements: list[str]):
    check_both_ways(postgres_shop, statements)


@in_mariadb_too
def test_planning_changes_nothing_and_says_what_would_be_changed(shop: Shop, opened: Session):
    before = shop.content()
    sql = {"do": "sql", "database": "shop", "statements": ["DELETE FROM kind WHERE name = 'book'"]}
    plan = opened.plan(sql)
    place = f"shop/{shop.schema}"
    assert set(plan.changes) >= {f"delete 2 rows of {place}/item", f"modify 2 rows of {place}/review"}
    counts = {(access.verb, access.resource): access.rows for access in plan.request.accesses}
    assert counts["delete", f"databases/{place}/kind"] == 1
    assert f"databases/{place}/kind/book" in plan.footprint.writes
    assert shop.content() == before


@in_mariadb_too
@pytest.mark.parametrize("mode", ["images", "transaction"])
def test_a_supplied_undo_is_ignored_with_a_warning(shop: Shop, opened: Session, mode: str):
    before = shop.content()
    statements = ["UPDATE item SET price = 1 WHERE id = 2"]
    sql = {"do": "sql", "database": "shop", "statements": statements, "undo": ["DELETE FROM item"], "mode": mode}
    proposal = opened.propose(sql)
    assert any(line.startswith("warning: the supplied undo is ignored") for line in proposal.plan.changes)
    opened.run(proposal.action, proposal.plan.digest)
    opened.undo(proposal.action)
    assert shop.content() == before


@in_mariadb_too
def test_the_difference_has_the_names_of_columns_and_the_rows(shop: Shop, opened: Session):
    action = done(opened, "DELETE FROM note WHERE text = 'y'")
    columns, *rows = opened.difference(action)
    assert columns == f"{shop.schema}/note: text, number"
    assert [row.partition(":")[0] for row in rows] == [f"- {shop.schema}/note"]
    proposal = opened.propose({"do": "sql", "database": "shop", "statements": ["DELETE FROM note"]})
    assert opened.difference(proposal.action) == []


def test_values_are_given_beside_the_statement(shop: Shop, opened: Session):
    mark = "?" if shop.schema == "main" else "$1"
    done(opened, f"DELETE FROM item WHERE id = {mark}", parameters=[[4]])
    assert [row[0] for row in shop.others("SELECT id FROM item ORDER BY id")] == [1, 2, 3]


def test_counters_of_sqlite_are_put_back_unless_others_have_counted_on(sqlite_shop: Shop):
    with sqlite_shop.session() as session:
        action = done(session, "INSERT INTO review (text) VALUES ('x')")
        assert session.journal.standing(action).proposed["guarantee"] == Guarantee.EXACT
        sqlite_shop.others("INSERT INTO review (text) VALUES ('theirs')")
        session.undo(action)
        assert sqlite_shop.others("SELECT seq FROM sqlite_sequence") == [(5,)]


def test_a_gap_in_a_sequence_is_told_before(postgres_shop: Shop):
    with postgres_shop.session() as session:
        sql = {"do": "sql", "database": "shop", "statements": ["INSERT INTO review (text) VALUES ('x')"]}
        plan = session.plan(sql)
        assert plan.guarantee is Guarantee.EQUIVALENT
        assert any("sequence public/review_id_seq" in line and "gap" in line for line in plan.changes)
        assert session.plan({**sql, "statements": ["DELETE FROM note"]}).guarantee is Guarantee.EXACT


def test_triggers_are_as_they_were_after_an_undo(postgres_shop: Shop):
    postgres_shop.others("ALTER TABLE item ENABLE ALWAYS TRIGGER item_log")
    check_both_ways(postgres_shop, ["UPDATE item SET price = 1 WHERE id = 1"])


def test_triggers_fire_for_the_action_and_not_for_its_undo(shop: Shop, opened: Session):
    action = done(opened, "UPDATE item SET price = 1 WHERE id = 3")
    assert len(shop.others("SELECT * FROM log")) == 1
    opened.undo(action)
    assert shop.others("SELECT * FROM log") == []


def test_nothing_of_ours_stays_in_the_database(postgres_shop: Shop):
    wanted = "SELECT proname FROM pg_proc WHERE proname LIKE 'autoclave%' UNION SELECT tgname FROM pg_trigger "
    wanted += "WHERE tgname LIKE '%autoclave%' UNION SELECT relname FROM pg_class WHERE relname LIKE 'autoclave%'"
    with postgres_shop.session() as session:
        action = done(session, "DELETE FROM kind")
        assert postgres_shop.others(wanted) == []
        session.undo(action)
        assert postgres_shop.others(wanted) == []


def test_names_of_tables_and_columns_are_names_and_nothing_else(postgres_shop: Shop):
    odd = '"$autoclave$; DROP TABLE item; SELECT $autoclave$"'
    postgres_shop.others(f'CREATE TABLE {odd} ("{{}}" int PRIMARY KEY, "{{0.x}}" text)')
    postgres_shop.others(f"INSERT INTO {odd} VALUES (1, 'a'), (2, 'b')")
    postgres_shop.others(f"GRANT ALL ON {odd} TO PUBLIC")
    check_both_ways(postgres_shop, [f"""UPDATE {odd} SET "{{0.x}}" = 'c' WHERE "{{}}" = 1"""])


def test_a_column_may_have_any_name(postgres_shop: Shop):
    postgres_shop.others(
        "CREATE TABLE letters (t text, w int PRIMARY KEY, r int); INSERT INTO letters VALUES ('a', 1, 2)"
    )
    postgres_shop.others("GRANT ALL ON letters TO PUBLIC")
    check_both_ways(postgres_shop, ["UPDATE letters SET t = 'b'"])
