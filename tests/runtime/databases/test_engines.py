"""What is said where an engine cannot be opened, or an action does nothing."""

from __future__ import annotations

import sys

import pytest
from pydantic import ValidationError

from autoclave.core import HostError, InputError
from autoclave.runtime.databases.engine import open_engine
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.session import Session
from tests.runtime.databases.shops import Shop, done, in_mariadb_too


@pytest.mark.parametrize(
    ("engine", "missing"),
    [
        ("sqlite", "apsw"),
        ("sqlite", "sqlglot"),
        ("postgresql", "pglast"),
        ("postgresql", "psycopg"),
        ("mariadb", "pymysql"),
    ],
)
def test_what_is_not_installed_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch, engine: str, missing: str):
    settings = DatabaseConnection(engine=engine, **({"path": "x"} if engine == "sqlite" else {"dbname": "x"}))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(HostError, match=rf"needs {missing}. Fix: pip install .*\[databases\]"):
        open_engine("here", settings, "")


def test_an_engine_that_is_none_is_no_setting():
    with pytest.raises(ValidationError, match="'sqlite', 'postgresql', 'mariadb' or 'redis'"):
        DatabaseConnection.model_validate({"engine": "oracle", "path": "x"})


@in_mariadb_too
def test_all_is_done_or_nothing(shop: Shop, opened: Session):
    before = shop.content()
    with pytest.raises(InputError):
        done(opened, "UPDATE item SET price = 0", "INSERT INTO item (id, name) VALUES (1, 'again')")
    assert shop.content() == before


@in_mariadb_too
def test_what_changes_nothing_is_no_action(shop: Shop, opened: Session):
    with pytest.raises(InputError, match="change nothing as it is now"):
        done(opened, "DELETE FROM item WHERE id = 1000")
