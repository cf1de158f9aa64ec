"""Shops in real databases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoclave.runtime.session import Session
from tests.mariadb import Mariadb, mariadb, mariadb_folder
from tests.postgresql import Postgres, postgres
from tests.runtime.databases.shops import (
    Shop,
    make_mariadb_shop,
    make_postgres_shop,
    make_sqlite_shop,
    prepare,
    prepare_mariadb,
)

__all__ = ["mariadb", "mariadb_folder", "postgres"]


@pytest.fixture(scope="session")
def server(postgres: Postgres) -> Postgres:
    postgres.settle(fsync="off", full_page_writes="off")
    prepare(postgres)
    return postgres


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> Shop:
    return make_sqlite_shop(tmp_path)


@pytest.fixture
def postgres_shop(server: Postgres, tmp_path: Path) -> Shop:
    return make_postgres_shop(server, tmp_path)


@pytest.fixture(scope="module")
def maria(mariadb: Mariadb) -> Mariadb:
    """A server on which somebody may act."""
    prepare_mariadb(mariadb)
    return mariadb


@pytest.fixture
def mariadb_shop(maria: Mariadb, tmp_path: Path) -> Shop:
    return make_mariadb_shop(maria, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """The same shop in each engine; in MariaDB too where a test says `in_mariadb_too`."""
    names = {"sqlite": "sqlite_shop", "postgresql": "postgres_shop", "mariadb": "mariadb_shop"}
    return request.getfixturevalue(names[request.param])


@pytest.fixture
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Shop]:
    """make_shop(engine): one more shop; those of servers take the place of the one before."""
    count = itertools.count()

    def make(engine: str) -> Shop:
        folder = tmp_path / f"shop{next(count)}"
        match engine:
            case "sqlite":
                return make_sqlite_shop(folder)
            case "mariadb":
                return make_mariadb_shop(request.getfixturevalue("maria"), folder)
        return make_postgres_shop(request.getfixturevalue("server"), folder)

    return make


@pytest.fixture
def opened(shop: Shop) -> Iterator[Session]:
    with shop.session() as session:
        yield session
