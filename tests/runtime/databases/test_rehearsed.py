"""What was rehearsed is recognised when it is done, so that rows are read once; and nothing else is taken for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, open_engine
from autoclave.runtime.databases.kept import KeptRows
from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from tests.runtime.databases.shops import Shop, done

IN_BOTH = {
    "an update": ["UPDATE item SET price = price + 1"],
    "with a cascade": ["DELETE FROM kind WHERE name = 'book'"],
    "a change that another one takes back in part": [
        "UPDATE item SET price = price + 1",
        "UPDATE item SET price = price - 1 WHERE id < 3",
    ],
    "rows without a key": ["DELETE FROM note WHERE text = 'x'", "INSERT INTO note VALUES ('x', 1)"],
    "new rows": ["INSERT INTO place VALUES ('C', 1, 'x'), ('C', 2, 'y')"],
    "a key of several columns": ["UPDATE place SET row = row + 10"],
    "a row with a computed column": ["UPDATE sum_of SET b = 9 WHERE a = 1"],
    "what triggers write": ["UPDATE item SET price = 1 WHERE id = 1", "UPDATE item SET price = 2 WHERE id = 1"],
}
THEIRS = {
    "a value that is changed": "UPDATE item SET price = 50 WHERE id = 3",
    "a value beside it": "UPDATE item SET photo = NULL WHERE id = 1",
    "values of two rows exchanged": "UPDATE item SET price = CASE id WHEN 3 THEN 4 ELSE 3 END WHERE id IN (3, 4)",
    "one row more": "INSERT INTO item VALUES (9, 'z', 9, 'toy', NULL)",
    "one row less": "DELETE FROM item WHERE id = 4",
    "a key": "UPDATE item SET id = 40 WHERE id = 4",
}
UPDATE = "UPDATE item SET price = price + 1"


@pytest.fixture(autouse=True)
def without_code_in_the_way(request: pytest.FixtureRequest) -> None:
    """PostgreSQL does not tell what its triggers depend on, so nothing is foretold of tables that have some."""
    for name in ("shop", "postgres_shop"):
        if name in request.fixturenames and request.getfixturevalue(name).schema != "main":
            request.getfixturevalue(name).others("DROP TRIGGER IF EXISTS item_log ON item")


@pytest.fixture
def engine(shop: Shop) -> Iterator[Engine]:
    with contextlib.closing(open_engine("shop", shop.settings, "")) as engine:
        yield engine


def sql(*statements: str) -> Sql:
    return Sql(database="shop", statements=statements)


def performed(engine: Engine, operation: Sql, planned: Effect | None) -> Effect:
    found: list[Effect] = []
    engine.perform(operation, lambda effect, _: found.append(effect), planned)
    (effect,) = found
    return effect


def take_back(engine: Engine, effect: Effect) -> None:
    engine.write(effect.inverse(), lambda _, mark: None)


@pytest.mark.parametrize("statements", IN_BOTH.values(), ids=IN_BOTH)
def test_what_was_rehearsed_is_recognised_and_is_what_was_done(shop: Shop, engine: Engine, statements: list[str]):
    operation, before = sql(*statements), shop.content()
    planned = engine.rehearse(operation, Mode.IMAGES)
    assert engine.rehearse(operation, Mode.IMAGES, planned) is planned
    assert shop.content() == before
    assert performed(engine, operation, planned) is planned
    after = shop.content()
    take_back(engine, planned)
    assert shop.content() == before
    assert performed(engine, operation, None) == planned
    assert shop.content() == after


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
def test_after_a_change_of_others_it_is_told_what_is_really_done(shop: Shop, engine: Engine, theirs: str):
    operation = sql(UPDATE)
    planned = engine.rehearse(operation, Mode.IMAGES)
    assert engine.rehearse(operation, Mode.IMAGES, planned) is planned
    shop.others(theirs)
    before = shop.content()
    again = engine.rehearse(operation, Mode.IMAGES, planned)
    assert again is not planned
    effect = performed(engine, operation, planned)
    assert effect == again != planned
    assert shop.content() != before
    take_back(engine, effect)
    assert shop.content() == before


def test_a_value_that_is_equal_and_not_the_same_is_noticed(postgres_shop: Shop):
    with contextlib.closing(open_engine("shop", postgres_shop.settings, "")) as engine:
        operation = sql("UPDATE item SET kind = 'toy'")
        planned = engine.rehearse(operation, Mode.IMAGES)
        postgres_shop.others("UPDATE item SET price = 10.500 WHERE id = 1")
        assert performed(engine, operation, planned) != planned


def test_so_is_an_integer_in_the_place_of_a_float(sqlite_shop: Shop):
    with contextlib.closing(open_engine("shop", sqlite_shop.settings, "")) as engine:
        operation = sql("UPDATE note SET text = 'z'")
        planned = engine.rehearse(operation, Mode.IMAGES)
        sqlite_shop.others("UPDATE note SET number = 1 WHERE typeof(number) = 'real'")
        assert performed(engine, operation, planned) is not planned


@pytest.mark.parametrize("statement", [UPDATE, "UPDATE kind SET note = note || 'x'"])
def test_after_another_action_or_an_undo_it_is_told_what_is_really_done(shop: Shop, engine: Engine, statement: str):
    planned = engine.rehearse(sql(statement), Mode.IMAGES)
    first = performed(engine, sql(statement), None)
    between = shop.content()
    second = performed(engine, sql(statement), planned)
    assert second != planned
    take_back(engine, second)
    assert shop.content() == between
    planned = engine.rehearse(sql(statement), Mode.IMAGES)
    take_back(engine, first)
    assert performed(engine, sql(statement), planned) != planned


def test_what_others_change_at_the_last_moment_is_not_taken_for_what_was_planned(shop: Shop, tmp_path: Path):
    manager, operation = DatabaseManager({"shop": shop.settings}, tmp_path / "rows", lambda _: ""), sql(UPDATE)
    with contextlib.closing(manager):
        started = manager.prepare("act", operation, manager.plan("act", operation))
        shop.others("UPDATE item SET price = 50 WHERE id = 3")
        theirs = shop.content()
        with pytest.raises(InputError, match="has changed since it was planned"):
            manager.execute("act", started)
        assert shop.content() == theirs


def test_effects_are_kept_by_their_names(tmp_path: Path):
    kept = KeptRows(tmp_path / "rows")
    one, other = (Effect(leaks=(word,)) for word in ("one", "other"))
    kept.put("act", "plan", one)
    kept.put_same("act", "done", "plan", one)
    kept.put("act", "undo", other)
    for rows in (kept, KeptRows(tmp_path / "rows")):
        assert [rows.get("act", name) for name in ("plan", "done", "undo")] == [one, one, other]
    kept.forget("act", "undo")
    with pytest.raises(InputError, match="not kept any more"):
        kept.get("act", "undo")
    kept.put("act", "plan", other)
    assert kept.get("act", "done") == one
    kept.discard("act")
    with pytest.raises(InputError, match="not kept any more"):
        kept.get("act", "plan")


def test_what_comes_out_otherwise_each_time_is_never_taken_for_what_was_rehearsed(shop: Shop, engine: Engine):
    is_sqlite = shop.schema == "main"
    drawn = "abs(random()) % 1000000007" if is_sqlite else "floor(random() * 1000000007)"
    for statement in (f"UPDATE item SET price = {drawn}", f"INSERT INTO note VALUES ('drawn', {drawn})"):
        before, planned = shop.content(), engine.rehearse(sql(statement), Mode.IMAGES)
        effect = performed(engine, sql(statement), planned)
        assert effect is not planned
        take_back(engine, effect)
        assert shop.content() == before


def test_nor_are_defaults_that_are_computed(sqlite_shop: Shop):
    sqlite_shop.others(
        "CREATE TABLE lot (id INTEGER PRIMARY KEY, drawn DEFAULT (random()), at DEFAULT current_timestamp)"
    )
    with contextlib.closing(open_engine("shop", sqlite_shop.settings, "")) as engine:
        operation = sql("INSERT INTO lot (id) VALUES (1)")
        planned = engine.rehearse(operation, Mode.IMAGES)
        effect = performed(engine, operation, planned)
        assert effect is not planned
        take_back(engine, effect)
        assert sqlite_shop.others("SELECT * FROM lot") == []


@pytest.mark.parametrize("way", ["trigger", "view", "foreign key"])
def test_nor_is_what_is_drawn_elsewhere(sqlite_shop: Shop, way: str):
    statement = "DELETE FROM lot WHERE id = 1"
    sqlite_shop.others(
        "CREATE TABLE lot (id INTEGER PRIMARY KEY); INSERT INTO lot VALUES (1), (2), (NULL); "
        "CREATE TABLE held (lot DEFAULT (2 + random() * 0) REFERENCES lot (id) ON DELETE SET DEFAULT); "
        "CREATE VIEW drawing AS SELECT abs(random()) AS number"
    )
    if way == "trigger":
        sqlite_shop.others("CREATE TRIGGER draw AFTER DELETE ON lot BEGIN INSERT INTO note VALUES ('x', random()); END")
    elif way == "view":
        statement = "UPDATE note SET number = (SELECT number FROM drawing)"
    else:
        sqlite_shop.others("INSERT INTO held VALUES (1)")
    with contextlib.closing(open_engine("shop", sqlite_shop.settings, "")) as engine:
        before, planned = sqlite_shop.content(), engine.rehearse(sql(statement), Mode.IMAGES)
        effect = performed(engine, sql(statement), planned)
        assert effect is not planned
        take_back(engine, effect)
        assert sqlite_shop.content() == before


def test_nor_is_what_virtual_tables_do(sqlite_shop: Shop):
    with contextlib.closing(open_engine("shop", sqlite_shop.settings, "")) as engine:
        planned = engine.rehearse(sql("UPDATE words SET text = 'fox'"), Mode.IMAGES)
        assert performed(engine, sql("UPDATE words SET text = 'fox'"), planned) is not planned


def test_nor_what_triggers_of_postgresql_do(postgres_shop: Shop):
    postgres_shop.others("CREATE TRIGGER item_log AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION log_it()")
    with contextlib.closing(open_engine("shop", postgres_shop.settings, "")) as engine:
        planned = engine.rehearse(sql(UPDATE), Mode.IMAGES)
        assert performed(engine, sql(UPDATE), planned) is not planned


def test_what_is_refused_when_it_is_kept_is_rolled_back(shop: Shop, engine: Engine):
    def refuse(*_: object) -> None:
        raise ValueError("not kept")

    before, planned = shop.content(), engine.rehearse(sql(UPDATE), Mode.IMAGES)
    with pytest.raises(ValueError, match="not kept"):
        engine.perform(sql(UPDATE), refuse, planned)
    assert shop.content() == before
    assert performed(engine, sql(UPDATE), planned) is planned


def test_rows_are_written_down_once_and_found_again_by_the_next_session(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        action = done(session, UPDATE)
        kept = shop.state / "rows" / action
        assert (kept / "plan.json").samefile(kept / "done.json")
    with shop.session() as session:
        session.undo(action)
        assert shop.content() == before
        session.redo(action)
    with shop.session() as session:
        session.undo(action)
        assert shop.content() == before


def test_many_plans_at_a_time_are_each_done_as_planned(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        proposals = [
            session.propose(
                {"do": "sql", "database": "shop", "statements": [f"INSERT INTO place VALUES ('Z', {number}, NULL)"]}
            )
            for number in range(6)
        ]
        for each in proposals:
            session.run(each.action, each.plan.digest)
        for each in reversed(proposals):
            session.undo(each.action)
    assert shop.content() == before
