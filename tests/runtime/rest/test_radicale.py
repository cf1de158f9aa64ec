"""The lunch invitation: items of a real calendar server are made, moved and deleted, and taken back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.session import Session
from tests.runtime.rest.acting import BASIC, ask, asked, connection, done, opened, secret
from tests.runtime.rest.faulty_proxy import Fault, FaultyProxy

_numbers = itertools.count()


def event(summary: str, hour: int = 12, uid: str = "lunch") -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tests//EN", "BEGIN:VEVENT", f"UID:{uid}"]
    lines += ["DTSTAMP:20261124T100000Z", f"DTSTART:20261125T{hour}0000Z", f"SUMMARY:{summary}"]
    lines += ["ATTENDEE;CN=A very long name that has to be folded by every writer of it:mailto:somebody@example.com"]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""])


@dataclass(frozen=True)
class Calendar:
    """Another client of the server."""

    port: int
    name: str

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str, str]:
        headers = {"Authorization": BASIC, "Content_Type": "text/calendar"}
        status, told, content = ask(self.port, method, f"/us/{self.name}/{path}", body, **headers)
        return status, told.get("etag", ""), content

    def put(self, name: str, body: str) -> None:
        assert self.ask("PUT", name, body)[0] in (201, 204)


@pytest.fixture
def calendar(radicale: int) -> Calendar:
    calendar = Calendar(radicale, f"c{next(_numbers)}")
    assert calendar.ask("MKCALENDAR", "")[0] == 201
    return calendar


@pytest.fixture
def session(radicale: int, tmp_path: Path) -> Iterator[Session]:
    services = {"radicale": connection(radicale, catalogue="radicale")}
    with opened(tmp_path, services, secret(radicale)) as session:
        yield session


def on(session: Session, operation: str, calendar: Calendar, **arguments: str) -> str:
    return done(session, operation, "radicale", user="us", calendar=calendar.name, **arguments)


def test_an_invitation_is_made_moved_and_withdrawn_and_each_of_it_taken_back(session: Session, calendar: Calendar):
    nothing = calendar.ask("GET", "lunch.ics")[0]
    assert nothing == 404
    made = on(session, "put_item", calendar, name="lunch.ics", body=event("Lunch"))
    at_noon = calendar.ask("GET", "lunch.ics")
    assert "SUMMARY:Lunch" in at_noon[2]
    moved = on(session, "put_item", calendar, name="lunch.ics", body=event("Lunch", hour=13))
    at_one = calendar.ask("GET", "lunch.ics")
    withdrawn = on(session, "delete_item", calendar, name="lunch.ics")
    assert calendar.ask("GET", "lunch.ics")[0] == 404
    session.undo(withdrawn)
    assert calendar.ask("GET", "lunch.ics") == at_one  # the same content, and so the same entity tag
    session.undo(moved)
    assert calendar.ask("GET", "lunch.ics") == at_noon
    session.undo(made)
    assert calendar.ask("GET", "lunch.ics")[0] == 404
    session.redo(made)
    assert calendar.ask("GET", "lunch.ics") == at_noon


def test_what_is_stored_otherwise_than_sent_is_no_change_by_somebody_else(session: Session, calendar: Calendar):
    made = on(session, "put_item", calendar, name="lunch.ics", body=event("Lunch"))
    stored = calendar.ask("GET", "lunch.ics")[2]
    assert stored != event("Lunch")
    calendar.put("lunch.ics", stored.replace("\r\n ", ""))  # the same once more, unfolded
    session.undo(made)
    assert calendar.ask("GET", "lunch.ics")[0] == 404


def test_a_calendar_is_taken_back_with_what_depends_on_it_but_not_with_others_items(session: Session, radicale: int):
    new = Calendar(radicale, f"c{next(_numbers)}")
    made = on(session, "make_calendar", new)
    item = on(session, "put_item", new, name="lunch.ics", body=event("Lunch"))
    with pytest.raises(InputError, match=f"{item} came later and depend on it"):
        session.undo(made)
    new.put("theirs.ics", event("Theirs", uid="theirs"))
    session.undo(item)
    with pytest.raises(InputError, match="somebody else has changed"):
        session.undo(made)
    assert new.ask("DELETE", "theirs.ics")[0] == 200
    session.undo(made)
    assert new.ask("GET", "")[0] == 404


def test_a_deleted_calendar_comes_back_with_its_items(session: Session, calendar: Calendar):
    for number in range(3):
        calendar.put(f"{number}.ics", event(f"Lunch {number}", uid=f"u{number}"))
    given = asked("delete_calendar", "radicale", user="us", calendar=calendar.name)
    assert session.plan(given).guarantee is Guarantee.COMPENSATING
    action = on(session, "delete_calendar", calendar)
    assert calendar.ask("GET", "")[0] == 404
    session.undo(action)
    assert sorted(line for line in calendar.ask("GET", "")[2].splitlines() if line.startswith("SUMMARY")) == [
        f"SUMMARY:Lunch {number}" for number in range(3)
    ]


@pytest.mark.parametrize("fault", ["cut_before", "cut_after", "half", "gateway_after", "twice"])
def test_faults_neither_lose_nor_double_an_invitation(radicale: int, calendar: Calendar, tmp_path: Path, fault: Fault):
    with FaultyProxy(radicale) as proxy:
        services = {"radicale": connection(proxy.port, catalogue="radicale")}
        with opened(tmp_path, services, secret(proxy.port)) as session:
            for name, body, method in (("lunch.ics", event("Lunch"), "DELETE"), ("lunch.ics", event("Later"), "PUT")):
                before = calendar.ask("GET", name)
                proxy.faults(fault)
                action = on(session, "put_item", calendar, name=name, body=body)
                after = calendar.ask("GET", name)
                assert after[0] == 200
                proxy.faults(fault, methods=method)
                session.undo(action)
                assert calendar.ask("GET", name)[:2] == before[:2]
                proxy.faults(fault)
                session.redo(action)
                assert calendar.ask("GET", name) == after
