"""Undos that an action supplies: used where they are proved exact, never able to lose a row."""

from __future__ import annotations

import pytest

from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.policy.grants import Grant
from tests.runtime.databases.shops import Shop, done, in_mariadb_too, session_on

ACT = ["UPDATE item SET price = 1 WHERE id = 2"]
HOSTILE = {
    "nothing": ["SELECT 1"],
    "all rows": ["DELETE FROM item"],
    "another table": ["UPDATE place SET item = 'z'"],
    "names alone": ["UPDATE item SET name = 'b' WHERE id = 2"],
    "another value": ["UPDATE item SET price = 199 WHERE id = 2"],
    "more than it changed": ["UPDATE item SET price = 200 WHERE id = 2", "DELETE FROM review WHERE id = 1"],
    "a commit": ["UPDATE item SET price = 200 WHERE id = 2", "COMMIT"],
    "no statement": ["UPDATE itme SET price = 200"],
    "another action": ["UPDATE item SET price = 200 WHERE id = 2; DELETE FROM item"],
    "the table": ["DROP TABLE item"],
}


def _grant(resource: str, verbs: tuple[str, ...]) -> Grant:
    return Grant(resources=(resource,), verbs=verbs, minimum_guarantee=Guarantee.NONE)


@in_mariadb_too
@pytest.mark.parametrize("undo", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_undo_is_ignored_with_a_warning_and_the_rows_are_restored(shop: Shop, undo: list[str]):
    before = shop.content()
    with shop.session() as session:
        proposal = session.propose({"do": "sql", "database": "shop", "statements": ACT, "undo": undo})
        assert any(line.startswith("warning: the supplied undo is ignored") for line in proposal.plan.changes)
        session.run(proposal.action, proposal.plan.digest)
        after = shop.content()
        session.undo(proposal.action)
        assert shop.content() == before
        session.redo(proposal.action)
        assert shop.content() == after
        session.undo(proposal.action)
    assert shop.content() == before


@in_mariadb_too
def test_an_undo_that_is_proved_exact_is_used(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    before = shop.content()
    with shop.session() as session:
        act = ["INSERT INTO place (shelf, row) VALUES ('C', 1)"]
        undo = ["DELETE FROM place WHERE shelf = 'C' AND row = 1"]
        proposal = session.propose({"do": "sql", "database": "shop", "statements": act, "undo": undo})
        assert any(line.startswith("undo by the supplied statements") for line in proposal.plan.changes)
        session.run(proposal.action, proposal.plan.digest)
        engine = session.actions.manager_of_action(proposal.action)._databases.engine("shop")  # type: ignore[attr-defined]
        monkeypatch.setattr(type(engine), "write", lambda *_: pytest.fail("the kept rows were written back"))
        session.undo(proposal.action)
    assert shop.content() == before


@in_mariadb_too
def test_where_a_proved_undo_does_something_else_later_the_kept_rows_are_written_back(shop: Shop):
    with shop.session() as session:
        undo = ["DELETE FROM place WHERE shelf = 'C'"]
        action = done(session, "INSERT INTO place (shelf, row) VALUES ('C', 1)", undo=undo)
        shop.others("INSERT INTO place (shelf, row) VALUES ('C', 2)")
        session.undo(action)
    assert [tuple(row) for row in shop.others("SELECT shelf, row FROM place WHERE shelf = 'C'")] == [("C", 2)]


def test_what_an_undo_reads_and_changes_must_be_permitted(shop: Shop):
    with session_on({"shop": shop.settings}, shop.state, granted=False) as session:
        session.permissions.grant(_grant(f"databases/shop/{shop.schema}/item", ("read", "modify")))
        session.permissions.grant(_grant(f"databases/shop/{shop.schema}/log", ("create",)))
        for undo in (["DELETE FROM item WHERE id = 2"], ["UPDATE item SET price = (SELECT max(id) FROM review)"]):
            with pytest.raises(NotPermitted):
                session.propose({"do": "sql", "database": "shop", "statements": ACT, "undo": undo})


def test_an_open_transaction_ignores_a_supplied_undo(shop: Shop):
    before = shop.content()
    with shop.session() as session:
        sql = {"do": "sql", "database": "shop", "statements": ACT, "undo": ["DELETE FROM item"], "mode": "transaction"}
        proposal = session.propose(sql)
        assert any("the supplied undo is ignored" in line for line in proposal.plan.changes)
        session.run(proposal.action, proposal.plan.digest)
        session.undo(proposal.action)
    assert shop.content() == before
