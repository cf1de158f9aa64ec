"""Shops in real databases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoclave.runtime.session import Session
from tests.postgresql import Postgres, postgres
from tests.runtime.databases.shops import Shop, make_postgres_shop, make_sqlite_shop, prepare

__all__ = ["postgres"]


@pytest.fixture(scope="session")
def server(postgres: Postgres) -> Postgres:
    """A server that keeps prepared transactions."""
    postgres.settle(max_prepared_transactions=8, fsync="off", full_page_writes="off")
    prepare(postgres)
    return postgres


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> Shop:
    return make_sqlite_shop(tmp_path)


@pytest.fixture
def postgres_shop(server: Postgres, tmp_path: Path) -> Shop:
    return make_postgres_shop(server, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest) -> Shop:
    """The same shop in each engine."""
    return request.getfixturevalue("sqlite_shop" if request.param == "sqlite" else "postgres_shop")


@pytest.fixture
def make_shop(server: Postgres, tmp_path: Path) -> Callable[[str], Shop]:
    """make_shop(engine): one more shop; that of PostgreSQL takes the place of the one before."""
    count = itertools.count()

    def make(engine: str) -> Shop:
        folder = tmp_path / f"shop{next(count)}"
        return make_sqlite_shop(folder) if engine == "sqlite" else make_postgres_shop(server, folder)

    return make


@pytest.fixture
def opened(shop: Shop) -> Iterator[Session]:
    with shop.session() as session:
        yield session
