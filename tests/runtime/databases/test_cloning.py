"""Actions that are planned on a copy of the database hold no lock meanwhile, and are taken back as ever."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import apsw
import psycopg
import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.throwaway.postgresql import postgres_throwaway
from autoclave.runtime.databases.throwaway.server import end_throwaways
from tests.runtime.databases.shops import CANARY, Shop, done
from tests.runtime.databases.test_reversal import content_of


@pytest.fixture(scope="module", autouse=True)
def server_of_copies() -> Iterator[None]:
    """Starts before a test does: it is not one of those that a test leaves behind."""
    postgres_throwaway(1)
    yield
    end_throwaways()


def proposed(*statements: str) -> dict[str, Any]:
    return {"do": "sql", "database": "shop", "statements": statements, "mode": "clone"}


@contextlib.contextmanager
def all_locked(shop: Shop) -> Iterator[None]:
    """Somebody writes, and does not let others."""
    if shop.settings.engine == "sqlite":
        with contextlib.closing(apsw.Connection(shop.settings.path)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            yield
        return
    place = {"host": shop.settings.host, "port": shop.settings.port or None, "dbname": shop.settings.dbname}
    with psycopg.connect(**place, user=shop.settings.user) as writer:
        writer.execute("UPDATE kind SET note = note")
        writer.execute("UPDATE item SET price = price")
        yield
        writer.rollback()


def test_a_plan_waits_for_nobody_and_the_action_is_taken_back_as_ever(shop: Shop):
    before = shop.content()
    statement = "DELETE FROM kind WHERE name = 'book'"
    with shop.session() as session:
        with all_locked(shop):
            plan = session.plan(proposed(statement))
        assert f"delete 1 row of shop/{shop.schema}/kind" in plan.changes
        assert f"delete 2 rows of shop/{shop.schema}/item" in plan.changes  # a cascade
        action = done(session, statement, mode="clone")
        assert shop.content() != before
        session.undo(action)
        assert shop.content() == before
        assert session.audit() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE item SET price = price + 1",
        "INSERT INTO place VALUES ('C', 1, 'x')",
        "DELETE FROM note",
        "INSERT INTO review (item, text) VALUES (1, 'x')",
        "UPDATE sum_of SET b = b * 2",
        "CREATE TABLE made (a INTEGER PRIMARY KEY, b TEXT)",
    ],
)
def test_what_comes_about_on_a_copy_comes_about(shop: Shop, statement: str):
    """Else it would be refused, as another than was planned."""
    before = content_of(shop)
    with shop.session() as session:
        action = done(session, statement, mode="clone")
        assert content_of(shop) != before
        session.undo(action)
        assert content_of(shop) == before


def test_a_plan_moves_no_sequence(postgres_shop: Shop):
    numbers = "SELECT last_value, is_called FROM review_id_seq"
    before = postgres_shop.others(numbers)
    with postgres_shop.session() as session:
        session.plan(proposed("INSERT INTO review (item, text) VALUES (1, 'x')"))
        assert postgres_shop.others(numbers) == before


def test_rights_are_those_of_the_database(postgres_shop: Shop):
    postgres_shop.others("REVOKE DELETE ON note FROM agent")
    with postgres_shop.session() as session, pytest.raises(InputError, match="may not do that"):
        session.plan(proposed("DELETE FROM note"))
    postgres_shop.others("GRANT DELETE ON note TO agent")


def test_a_schema_that_everybody_may_use_is_one_on_the_copy(postgres_shop: Shop):
    """No dump tells of that: it is so from the beginning."""
    postgres_shop.others("REVOKE ALL ON SCHEMA public FROM agent; GRANT USAGE ON SCHEMA public TO PUBLIC")
    assert postgres_shop.others("SELECT has_schema_privilege('agent', 'public', 'USAGE')") == [(True,)]
    with postgres_shop.session() as session:
        assert session.plan(proposed("DELETE FROM note")).changes


def test_what_is_large_is_not_copied(shop: Shop):
    with (
        shop.session(max_clone_bytes=4096) as session,
        pytest.raises(InputError, match="more than max_clone_bytes") as caught,
    ):
        session.plan(proposed("DELETE FROM note"))
    assert CANARY not in f"{caught.value}"


def test_no_copy_stays(postgres_shop: Shop):
    server, _ = postgres_throwaway(1)
    query = "SELECT count(*) FROM pg_database WHERE datname LIKE 'ground%'"
    with contextlib.closing(server.owner_of("postgres")) as owner:
        before = owner.execute(query).fetchone()
        with postgres_shop.session() as session:
            session.plan(proposed("DELETE FROM note"))
            with pytest.raises(InputError):
                session.plan(proposed("DELETE FROM nothing"))
        assert owner.execute(query).fetchone() == before
