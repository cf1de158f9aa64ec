"""What a service shows is believed where it says something, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.rest.catalogue import Listing
from autoclave.runtime.rest.parts import Answer, Call
from autoclave.runtime.rest.service import Service
from autoclave.runtime.rest.wire import Wire
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import asked, before_each, connection, done, secret
from tests.runtime.rest.odd_service import OddService, opened_on

S = ActionState


@pytest.fixture
def service() -> Iterator[OddService]:
    with OddService() as service:
        yield service


@pytest.fixture
def odd(service: OddService, tmp_path: Path) -> Iterator[Session]:
    with opened_on(service, tmp_path) as session:
        yield session


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_a_read_back_that_is_refused_with_a_good_status_says_nothing_of_what_is_there(
    odd: Session, service: OddService
):
    service.lamps["a"], service.num_refused_read_backs = False, 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.propose(asked("on", "odd", body={"id": "a"}))
    assert service.lamps == {"a": False}
    action = done(odd, "on", "odd", body={"id": "a"})
    service.num_refused_read_backs = 1
    with pytest.raises(InputError, match="ratelimited"):
        odd.undo(action)
    odd.undo(action)
    assert service.lamps == {"a": False}


def test_what_the_catalogue_says_means_absence_does(odd: Session):
    assert "cannot be taken back" in odd.plan(asked("on", "odd", body={"id": "nowhere"})).changes[0]


# --- Late read-backs -------------------------------------------------------------------------------------------------


def with_late_read_backs(session: Session, service: OddService, call: str) -> None:
    """From now on, the first read-backs within a call of the manager show what there was before."""
    before_each(session, call, lambda: setattr(service, "num_late", 2))


@pytest.mark.parametrize("call", ["conflicts", "plan_undo", "undo"])
@pytest.mark.parametrize("first", [{}, {"x": {"v": 1}}], ids=["new", "changed"])
def test_what_was_there_before_and_is_shown_late_is_not_taken_for_an_undo(
    odd: Session, service: OddService, first: dict[str, Any], call: str
):
    service.items |= first
    action = done(odd, "put", "odd", id="x", body={"cost": 0})
    with_late_read_backs(odd, service, call)
    odd.undo(action)
    assert service.items == first
    assert odd.journal.standing(action).state is S.UNDONE


def test_what_a_change_left_is_seen_when_it_comes_to_show(odd: Session, service: OddService):
    service.items["x"] = {"v": 1}
    with_late_read_backs(odd, service, "execute")
    action = done(odd, "put", "odd", id="x", body={"cost": 0})
    assert odd.conflicts_of(action) == []
    odd.undo(action)
    assert service.items == {"x": {"v": 1}}


# --- Where read-backs lead -------------------------------------------------------------------------------------------


def test_the_next_page_of_a_listing_is_at_the_same_path_or_is_not_asked_for(service: OddService):
    plain = {"path": "/items?all=1", "items": "", "id": "/id", "next": "$response.header.link"}
    first, own = Call("GET", "/items?all=1"), f"http://localhost:{service.port}"
    asks = Service("odd", connection(service.port), None, Wire(connection(service.port), lambda name: secret(1)))

    def following(place: str, **others: Any) -> str:
        answer = Answer(200, {"link": f'<{own}/items>; rel="first", <{place}>; rel="next"'})
        call = asks.next_page(Listing(**plain, **others), first, answer)
        assert call is not None
        return call.target

    assert following(f"{own}/items?all=1&page=2") == "/items?all=1&page=2"
    assert following(f"{own}/by-number/7?page=2&all=1", next_as="page") == "/items?all=1&page=2"
    for place in (f"{own}/admin/delete_all?page=2", "http://other.example/items?page=2"):
        with pytest.raises(InputError, match="leads to"):
            following(place)
