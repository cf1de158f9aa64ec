"""A session that touched files, a database and a service goes back as a whole, or not at all; seen by other readers."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.connections import Connections, VaultPlace, save_connections
from autoclave.runtime.databases.settings import DatabaseConnection
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.opening import open_session
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from autoclave.runtime.vault import KeyFile, Vault
from tests.runtime.deaths import SOME_OR_EACH, dies_at
from tests.runtime.rest.acting import Reader, connection, secret
from tests.runtime.rest.faulty_proxy import Fault, FaultyProxy
from tests.runtime.rest.servers import kinto_running
from tests.runtime.trees import done, texts

S = ActionState


@pytest.fixture(scope="module")
def kinto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with kinto_running(tmp_path_factory.mktemp("kinto")) as port:
        yield port


@dataclass
class Resources:
    """A folder, a database and a service that one session is on, as others see them."""

    root: Path
    database: Path
    notes: Reader
    proxy: FaultyProxy

    def seen(self) -> tuple[Any, ...]:
        with sqlite3.connect(self.database) as connection:
            rows = connection.execute("SELECT * FROM item ORDER BY id").fetchall()
        connection.close()
        return texts(self.root), rows, self.notes.records()

    def session(self) -> Session:
        session = open_session(self.root, self.root.parent / "state")
        if not session.permissions.grants():
            resources = ("files/**", "databases/**", "services/**")
            session.permissions.grant(Grant(resources=resources, verbs=("*",), minimum_guarantee=Guarantee.NONE))
        return session

    def act(self, session: Session, rounds: int = 2) -> list[str]:
        """Something in each resource, one after the other; once, or once more."""
        note = {"bucket": self.notes.bucket, "collection": self.notes.collection}
        asked = {"do": "request", "service": "notes"}
        first = [
            done(session, do="write", path="b.txt", content="changed\n"),
            done(session, do="sql", database="shop", statements=["UPDATE item SET price = price * 2"]),
            done(session, **asked, operation="create_record", arguments={**note, "body": {"data": {"title": "new"}}}),
        ]
        if rounds == 1:
            return first
        again = {"do": "sql", "database": "shop", "statements": ["DELETE FROM item WHERE id = 2"]}
        return [*first, done(session, do="delete", path="docs", recursive=True), done(session, **again)]


@pytest.fixture
def resources(root: Path, kinto: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resources]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "leases"))
    notes = Reader(kinto, f"b-{tmp_path.name}"[:60])
    notes.make()
    notes.put("old", title="there")
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as connection_:
        connection_.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price)")
        connection_.execute("INSERT INTO item VALUES (1, 5), (2, 7)")
    connection_.close()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with FaultyProxy(kinto) as proxy:
        vault = tmp_path / "vault"
        Vault(vault, KeyFile(tmp_path / "vault.key")).add(secret(proxy.port))
        shop = DatabaseConnection(engine="sqlite", path=str(database))
        place = VaultPlace(path=str(vault))
        services = {"notes": connection(proxy.port)}
        save_connections(state, Connections(vault=place, databases={"shop": shop}, services=services))
        yield Resources(root, database, notes, proxy)


def test_all_kinds_go_back_to_a_mark_and_forward_again(resources: Resources):
    before = resources.seen()
    with resources.session() as session:
        session.savepoint("start")
        actions = resources.act(session)
        assert all(one != other for one, other in zip(resources.seen(), before, strict=True))
        session.undo_to("start")
        assert resources.seen() == before
        assert {session.journal.standing(each).state for each in actions} == {S.UNDONE}
        for action in actions:
            session.redo(action)
        session.undo_to("start")
        assert resources.seen() == before
        assert session.audit() == []


def test_what_somebody_else_changed_in_one_resource_keeps_all_of_them_as_they_are(resources: Resources):
    with resources.session() as session:
        session.savepoint("start")
        resources.act(session)
        (record,) = set(resources.notes.records()) - {"old"}
        resources.notes.put(record, title="theirs")
        found = resources.seen()
        with pytest.raises(InputError, match="somebody else has changed"):
            session.undo_to("start")
        assert resources.seen() == found


@pytest.mark.parametrize("fault", ["gateway_before", "cut_before"])
def test_where_one_resource_does_not_answer_the_others_are_done_again(resources: Resources, fault: Fault):
    before = resources.seen()
    with resources.session() as session:
        session.savepoint("start")
        actions = resources.act(session)
        found = resources.seen()
        resources.proxy.choose = lambda method, path: fault if method == "DELETE" else "none"
        with pytest.raises(InputError, match="the others stand as they did"):
            session.undo_to("start")
        assert resources.seen()[:2] == found[:2]
        assert session.journal.standing(actions[2]).state is S.UNDO_IN_DOUBT
        resources.proxy.choose = lambda method, path: "none"
        session.undo_to("start")  # looks again by itself at what is in doubt
        assert resources.seen() == before


@SOME_OR_EACH
def test_killed_at_every_step_of_the_journal_all_kinds_have_gone_back_or_none(resources: Resources, every: int):
    before = resources.seen()
    with resources.session() as session:
        session.savepoint("start")
        actions = resources.act(session, rounds=1)
        after = resources.seen()
    for deadly in itertools.count(1, every):
        was_killed = dies_at(deadly, resources.root, {"undo_to": "start"}, is_journal_alone=True)
        with resources.session() as session:
            states = {session.journal.standing(each).state for each in actions}
            assert len(states) == 1, (deadly, states)
            if states == {S.UNDONE}:
                assert resources.seen() == before
                for action in actions:
                    session.redo(action)
            files, rows, notes = resources.seen()
            assert (files, rows) == after[:2]
            assert sorted(map(str, notes.values())) == sorted(map(str, after[2].values()))
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 20
