"""Rows that an action changed, as the review page shows them, from each real engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoclave.review.details import row_changes
from autoclave.runtime.databases.effects import Effect, TableEffect
from autoclave.runtime.databases.modes import KeptRows
from tests.runtime.databases.shops import Shop, done, in_mariadb_too

ODD = 'a "quoted", \\ (x)\n<b>'


def changes(shop: Shop, *statements: str) -> dict[str, dict[str, Any]]:
    """Do statements; what changed, by table."""
    with shop.session() as session:
        action = done(session, *statements)
        receipt = session.actions.receipt(action)
    found = row_changes(action, receipt, shop.state / "rows")
    return {each["path"].rpartition("/")[2]: each for each in found}


@in_mariadb_too
def test_values_stand_under_the_names_of_their_columns(shop: Shop):
    spelt = ODD.replace("\\", "\\\\") if type(shop.server).__name__ == "Mariadb" else ODD
    update = f"UPDATE item SET name = '{spelt}' WHERE id = 2"
    (change,) = [each for name, each in changes(shop, update).items() if name == "item"]
    assert change["columns"] == ["id", "name", "price", "kind", "photo"]
    (row,) = change["rows"]
    assert row["key"] == "2"
    before, after = (dict(zip(change["columns"], row[side], strict=True)) for side in ("before", "after"))
    assert (before.pop("name"), after.pop("name")) == ("b", ODD)
    assert before == after
    assert (before["id"], before["kind"], before["photo"]) == ("2", "book", None)
    assert float(before["price"]) == 200.0


@in_mariadb_too
def test_an_empty_text_is_not_null_in_tables_without_a_key(shop: Shop):
    change = changes(shop, "DELETE FROM note WHERE text = 'y'", "INSERT INTO note VALUES ('', NULL)")["note"]
    before, after = ([row[side] for row in change["rows"] if row[side]] for side in ("before", "after"))
    assert [cells[0] for cells in before] == ["y"]
    assert after == [["", None]]


def test_of_many_rows_the_first_are_shown(tmp_path: Path):
    rows = tuple((str(number), [str(number)]) for number in range(500))
    KeptRows(tmp_path).put("a", "done", Effect((TableEffect("main/t", '[["id"]]', (), rows),)))
    (change,) = row_changes("a", {"database": "shop", "images": "done", "forwards": True}, tmp_path)
    assert (len(change["rows"]), change["left_out"], change["verb"]) == (200, 300, "500 created")


@pytest.mark.parametrize("end", [-1, 33_000_000_000_000])
def test_keys_are_shown_by_the_size_of_what_they_hold(tmp_path: Path, end: int):
    table = TableEffect("0", '[["key"]]', (("gone", ["abc", "x" * 10, -1]),), (("new", ["def", "x" * 20, end]),))
    KeptRows(tmp_path).put("a", "done", Effect((table,)))
    (change,) = row_changes("a", {"database": "cache", "images": "done", "forwards": True}, tmp_path)
    assert change["rows"] == [
        {"key": "gone", "before": ["abc", "8", "never"], "after": None},
        {"key": "new", "before": None, "after": ["def", "16", "never" if end < 0 else str(end)]},
    ]
