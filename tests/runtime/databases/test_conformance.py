"""The engines that are here do what every engine must."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from autoclave.core import HostError
from autoclave.runtime.databases.conformance import EngineConformance, ScratchDatabase
from autoclave.runtime.databases.engine import open_engine
from autoclave.runtime.databases.settings import DatabaseConnection
from tests.mariadb import Mariadb
from tests.postgresql import Postgres
from tests.runtime.databases.shops import empty_mariadb, make_postgres_shop


class TestSqlite(EngineConformance):
    @pytest.fixture
    def scratch(self, tmp_path: Path) -> ScratchDatabase:
        path = f"{tmp_path / 'here.db'}"
        apsw.Connection(path).close()
        Path(path).touch()

        def others(statement: str) -> Any:
            with contextlib.closing(apsw.Connection(path)) as connection:
                return list(connection.execute(statement))

        return ScratchDatabase(DatabaseConnection(engine="sqlite", path=path), others, "main")


class TestPostgresql(EngineConformance):
    @pytest.fixture
    def scratch(self, server: Postgres, tmp_path: Path) -> ScratchDatabase:
        shop = make_postgres_shop(server, tmp_path)
        shop.others("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO agent")
        return ScratchDatabase(shop.settings, shop.others, "public")


class TestMariadb(EngineConformance):
    @pytest.fixture
    def scratch(self, maria: Mariadb) -> ScratchDatabase:
        empty_mariadb(maria)
        settings = DatabaseConnection(engine="mariadb", host=f"{maria.folder}", dbname="shop", user="agent")
        return ScratchDatabase(settings, lambda statement: maria.execute(statement, database="shop"), "shop")


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


def test_an_engine_that_nobody_has_is_told():
    with pytest.raises(
        HostError,
        match='engine = "oracle": no installed package has it; there are mariadb, postgresql, redis, sqlite',
    ):
        open_engine("here", DatabaseConnection(engine="oracle", path="x"), "")
