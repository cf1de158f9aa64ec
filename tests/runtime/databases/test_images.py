"""Actions in the mode `images`: every row that statements change is put back exactly, and brought again."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, TableEffect
from autoclave.runtime.databases.engine import Engine, open_engine
from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.modes import effect_of
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotUndone
from autoclave.runtime.session import Session
from autoclave.runtime.states import STANDING, ActionState
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


ALL = {
    f"{engine}: {name}": (engine, statements)
    for engine, cases in (
        ("sqlite", {**IN_BOTH, **IN_SQLITE}), ("postgres", {**IN_BOTH, **IN_POSTGRESQL}), ("mariadb", IN_MARIADB),
    )
    for name, statements in cases.items()
}  # fmt: skip


@pytest.mark.parametrize(("engine", "statements"), ALL.values(), ids=ALL)
def test_what_was_done_is_taken_back_exactly_and_done_again(
    request: pytest.FixtureRequest, engine: str, statements: list[str]
):
    check_both_ways(request.getfixturevalue(f"{engine}_shop"), statements)


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
    postgres_shop.others(f'CREATE TABLE {odd} (t text, w int, r int, "{{}}" int PRIMARY KEY, "{{0.x}}" text)')
    postgres_shop.others(f"INSERT INTO {odd} VALUES ('t', 0, 1, 1, 'a'), ('t', 0, 1, 2, 'b')")
    postgres_shop.others(f"GRANT ALL ON {odd} TO PUBLIC")
    check_both_ways(postgres_shop, [f"""UPDATE {odd} SET "{{0.x}}" = 'c' WHERE "{{}}" = 1"""])


def drawn(draw: random.Random, number: int) -> list[str]:
    """Statements, each with numbers and times of its own; not all can be done."""
    one, other = draw.randint(1, 4), draw.randint(1, 4)
    kind = draw.choice(["book", "toy", "empty"])
    some = [
        f"INSERT INTO kind (name) VALUES ('k{number}')",
        f"INSERT INTO item (id, name, price, kind) VALUES ({100 + number}, 'i{number}', {number}, '{kind}')",
        f"INSERT INTO review (id, item, text) VALUES ({100 + number}, {one}, 't{number}')",
        f"UPDATE item SET price = {number}, name = 'n{number}' WHERE id = {one}",
        f"UPDATE item SET price = price + {number} WHERE kind = '{kind}'",
        f"UPDATE review SET item = {other} WHERE item = {one}",
        f"UPDATE place SET row = row + {number} WHERE shelf = 'A'",
        "UPDATE note SET number = number + 1 WHERE text = 'x'",
        f"UPDATE part SET whole = {other} WHERE id = {one}",
        f"UPDATE kind SET name = 'r{number}' WHERE name = '{kind}'",
        f"DELETE FROM item WHERE id = {one}",
        f"DELETE FROM kind WHERE name = '{kind}'",
        f"DELETE FROM part WHERE id = {one}",
        f"DELETE FROM note WHERE number = {draw.randint(1, 3)}",
        f"DELETE FROM review WHERE id = {one}",
        "INSERT INTO log SELECT name, id FROM item",
        f"INSERT INTO sum_of (a, b) VALUES ({10 + number}, {one})",
        f"UPDATE sum_of SET b = {number} WHERE a = {draw.choice([1, 3])}",
    ]
    return draw.sample(some, draw.choice([1, 1, 2]))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.parametrize("seed", [1, 2, 3, pytest.param(range(10, 60), marks=pytest.mark.soak)])
def test_what_is_left_is_what_a_replay_without_the_undone_gives(
    seed: int | range, request: pytest.FixtureRequest, kind: str
):
    for each in [seed] if isinstance(seed, int) else seed:
        check_sequence(random.Random(each), request, kind)


def check_sequence(draw: random.Random, request: pytest.FixtureRequest, engine: str) -> None:
    make = request.getfixturevalue("make_shop")
    shop: Shop = make(engine)
    statements: dict[str, list[str]] = {}
    order: list[str] = []
    num_undone = 0
    with shop.session() as session:
        for number in range(14):
            try:
                action = done(session, *(given := drawn(draw, number)))
                statements[action] = given
                order.append(action)
            except InputError:
                pass
            standing = [each.action for each in session.journal.standings(STANDING)]
            if standing and draw.random() < 0.4:
                try:
                    undone = session.undo(draw.choice(standing), dependents=draw.random() < 0.5)
                    num_undone += len(undone)
                    if draw.random() < 0.3 and len(undone) == 1:
                        session.redo(undone[0])
                        num_undone -= 1
                except (NotUndone, InputError):
                    pass
        left = {each.action for each in session.journal.standings(STANDING)}
        found = shop.content()
    replay: Shop = make(engine)
    with replay.session() as session:
        for action in order:
            if action in left:
                done(session, *statements[action])
    wanted = replay.content()
    assert num_undone > 0
    assert {name: without_rowids(name, rows, engine) for name, rows in found.items() if name != "sqlite_sequence"} == {
        name: without_rowids(name, rows, engine) for name, rows in wanted.items() if name != "sqlite_sequence"
    }


def without_rowids(name: str, rows: list[str], engine: str) -> list[str]:
    """Rows of tables without a key may have another rowid, which SQLite does not promise to keep."""
    return sorted(row.partition(", ")[2] for row in rows) if engine == "sqlite" and name != "place" else rows


THEIRS = {
    "a value that is changed": "UPDATE item SET price = 50 WHERE id = 3",
    "a value beside it": "UPDATE item SET photo = NULL WHERE id = 1",
    "values of two rows exchanged": "UPDATE item SET price = CASE id WHEN 3 THEN 4 ELSE 3 END WHERE id IN (3, 4)",
    "one row more": "INSERT INTO item VALUES (9, 'z', 9, 'toy', NULL)",
    "one row less": "DELETE FROM item WHERE id = 4",
    "a key": "UPDATE item SET id = 40 WHERE id = 4",
}
UPDATE = "UPDATE item SET price = price + 1"


@pytest.fixture
def engine(shop: Shop) -> Iterator[Engine]:
    with contextlib.closing(open_engine("shop", shop.settings, "")) as engine:
        yield engine


def sql(*statements: str) -> Sql:
    return Sql(database="shop", statements=statements)


def performed(engine: Engine, operation: Sql) -> Effect:
    found: list[Effect] = []
    engine.perform(operation, lambda effect, _: found.append(effect))
    (effect,) = found
    return effect


def take_back(engine: Engine, effect: Effect) -> None:
    engine.write(effect.inverse(), lambda _, mark: None)


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
def test_after_a_change_of_others_the_effect_is_of_what_is_really_done(shop: Shop, engine: Engine, theirs: str):
    planned = engine.rehearse(sql(UPDATE), Mode.IMAGES)
    shop.others(theirs)
    before = shop.content()
    effect = performed(engine, sql(UPDATE))
    assert effect.digest() != planned.digest()
    assert shop.content() != before
    take_back(engine, effect)
    assert shop.content() == before


def test_a_value_that_is_equal_and_not_the_same_is_noticed(postgres_shop: Shop):
    with contextlib.closing(open_engine("shop", postgres_shop.settings, "")) as engine:
        operation = sql("UPDATE item SET kind = 'toy'")
        planned = engine.rehearse(operation, Mode.IMAGES)
        postgres_shop.others("UPDATE item SET price = 10.500 WHERE id = 1")
        assert performed(engine, operation).digest() != planned.digest()


def test_what_others_change_at_the_last_moment_is_not_taken_for_what_was_planned(shop: Shop, tmp_path: Path):
    manager, operation = DatabaseManager({"shop": shop.settings}, tmp_path / "rows", lambda _: ""), sql(UPDATE)
    with contextlib.closing(manager):
        started = manager.prepare("act", operation, manager.plan("act", operation))
        shop.others("UPDATE item SET price = 50 WHERE id = 3")
        theirs = shop.content()
        with pytest.raises(InputError, match="has changed since it was planned"):
            manager.execute("act", started)
        assert shop.content() == theirs


def test_values_are_kept_to_the_last_bit():
    values = [1, 1.0, -0.0, float("inf"), -float("inf"), 2**63 - 1, 5e-324, 0.1 + 0.2, "\u2028\0\n", None, {"b": "00"}]
    effect = Effect((TableEffect("main/t", "[]", (("k", [7, values]),)),), {"t": (None, 1)}, frozenset({"main/t"}))
    assert repr(effect_of(effect.to_bytes()).tables[0].removed) == repr([("k", [7, values])])


def test_what_comes_out_otherwise_each_time_is_undone_as_it_was_done(shop: Shop, engine: Engine):
    drawn = "abs(random()) % 1000000007" if shop.schema == "main" else "floor(random() * 1000000007)"
    for statement in (f"UPDATE item SET price = {drawn}", f"INSERT INTO note VALUES ('drawn', {drawn})"):
        before = shop.content()
        take_back(engine, performed(engine, sql(statement)))
        assert shop.content() == before
