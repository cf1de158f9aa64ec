"""What was rehearsed is what is done, or it is not done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect, TableEffect
from autoclave.runtime.databases.engine import Engine, open_engine
from autoclave.runtime.databases.kept import KeptRows, effect_of
from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import Mode
from tests.runtime.databases.shops import Shop

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


def test_effects_are_kept_by_their_names(tmp_path: Path):
    kept = KeptRows(tmp_path / "rows")
    one, other = (Effect(side_effects=(word,)) for word in ("one", "other"))
    kept.put("act", "plan", one)
    kept.put("act", "done", one)
    kept.put("act", "undo", other)
    for rows in (kept, KeptRows(tmp_path / "rows")):
        assert [rows.get("act", name) for name in ("plan", "done", "undo")] == [one, one, other]
    assert kept.effect("act", {"images": "undo", "forwards": False}) == other.inverse()
    kept.discard("act")
    with pytest.raises(InputError, match="not kept any more"):
        kept.get("act", "plan")


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
