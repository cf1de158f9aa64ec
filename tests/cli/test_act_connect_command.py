"""`autoclave act connect`: databases and services beside the folder, used by `act run` and `act undo`; and mistakes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apsw", reason="the extra `databases` is not installed")
HALVE = {"do": "sql", "database": "shop", "statements": ["UPDATE item SET price = price / 2 WHERE id = 1"]}


@pytest.fixture
def act(forked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """act(words...): the command on the folder `project`, beside which there is a database `shop.db`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    (tmp_path / "project").mkdir()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price)")
        connection.execute("INSERT INTO item VALUES (1, 10), (2, 20)")
    connection.close()
    (tmp_path / "no.db").write_text("no database " * 200)

    def run(*words: str, **options: Any):
        return forked("act", *words, "--root", "project", **options)

    return run


def prices(tmp_path: Path) -> list[Any]:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        found = connection.execute("SELECT price FROM item ORDER BY id").fetchall()
    connection.close()
    return [price for (price,) in found]


def test_a_connected_database_is_changed_and_taken_back(act, tmp_path: Path):
    told = act("connect", "database", "shop", "engine=sqlite", "path=shop.db")
    assert told.returncode == 0, told.stderr
    assert "engine: sqlite" in act("connect", "list").stdout
    denied = act("run", "-", input=json.dumps(HALVE))
    assert (denied.returncode, "databases/shop/main/item" in denied.stderr) == (1, True)
    act("grant", "databases/shop/**", "--verbs", "read,modify", "--max-rows", "1")
    done = act("run", "-", input=json.dumps(HALVE))
    assert done.returncode == 0, done.stderr
    assert prices(tmp_path) == [5, 20]
    name = done.stdout.split()[0]
    assert "sql on shop: UPDATE item" in act("list").stdout
    assert act("undo", name).returncode == 0
    assert prices(tmp_path) == [10, 20]
    over = act("run", "-", input=json.dumps({**HALVE, "statements": ["UPDATE item SET price = 0"]}))
    assert (over.returncode, prices(tmp_path)) == (1, [10, 20])


def test_what_was_done_to_a_database_needs_it_to_be_taken_back(act, tmp_path: Path):
    act("connect", "database", "shop", "engine=sqlite", "path=shop.db")
    act("grant", "databases/**")
    name = act("run", "-", input=json.dumps(HALVE)).stdout.split()[0]
    assert act("connect", "remove", "shop").returncode == 0
    refused = act("undo", name)
    assert (refused.returncode, "shop" in refused.stderr, "Traceback" in refused.stderr) == (1, True, False)
    act("connect", "database", "shop", "engine=sqlite", "path=shop.db")
    assert act("undo", name).returncode == 0
    assert prices(tmp_path) == [10, 20]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["connect", "database", "shop", "engine=sqlite"], "path, dbname: engine sqlite needs path, and no dbname"),
        (["connect", "database", "shop", "engine=sqlite", "path=a", "pasword=x"], "pasword"),
        (["connect", "database", "a/b", "engine=sqlite", "path=a"], 'databases.a/b.[key] = "a/b": must match'),
        (["connect", "database", "shop", "engine=orcale", "path=shop.db"], 'engine = "orcale"'),
        (["connect", "database", "shop", "engine=sqlite", "path=absent.db"], "there is no such file"),
        (["connect", "database", "shop", "engine=sqlite", "path=project"], "there is no such file"),
        (["connect", "database", "shop", "engine=sqlite", "path=no.db"], "is no SQLite database"),
        (["connect", "database", "shop", "path"], "a setting is path=value"),
        (["connect", "service", "notes", "base_url=http://example.com"], "must be https"),
        (["connect", "service", "notes", "base_url=https://a.example:99999"], "port must be from 1 to 65535"),
        (["connect", "service", "notes", "bas_url=https://a.example"], "no such setting; did you mean base_url?"),
        (["connect", "service", "notes", "base_url=https://a.example", "catalogue=kintoo"], "did you mean kinto?"),
        (["connect", "service", "notes", "base_url=https://a.example", "catalogue=/dev/zero"], "is not a plain file"),
        (["connect", "vault", "/dev/zero"], "is not a plain file"),
        (["connect", "model", "endpoint=x", "name=y"], 'model.endpoint = "x": must match'),
        (["connect", "remove", "shop"], "shop: is not connected"),
    ],
)
def test_mistakes_are_named(act, words: list[str], complaint: str):
    told = act(*words)
    assert told.returncode in (2, 3), told.stdout
    assert complaint in told.stderr
    assert "Traceback" not in told.stderr
    assert act("connect", "list").stdout == ""


def test_what_is_a_text_is_kept_as_it_is_given(act):
    assert act("connect", "database", "cache", "engine=redis", "host=localhost", "dbname=07").returncode == 0
    assert "dbname: '07'" in act("connect", "list").stdout
