"""Answers as real services give them, in all the forms that the standards have: none is taken for more than it says."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import AutoclaveError, HostError, InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.rest.parts import Call, Part, State
from autoclave.runtime.rest.service import following
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import asked, done, manager_of
from tests.runtime.rest.odd_service import CATALOGUE, opened_on
from tests.runtime.rest.scripted_service import Items, Script, ScriptedService, answer, told


@pytest.fixture
def serving() -> Iterator[Callable[[Script], ScriptedService]]:
    with contextlib.ExitStack() as services:
        yield lambda script: services.enter_context(ScriptedService(script))


Serving = Callable[[Script], ScriptedService]


def guarded() -> dict[str, Any]:
    operations: dict[str, Any] = CATALOGUE["operations"]
    heeding = {name: {**operations[name], "is_guarded": True} for name in ("put", "delete")}
    return {**CATALOGUE, "operations": {**operations, **heeding}}


def the_only(session: Session) -> str:
    (standing,) = session.journal.standings()
    return standing.action


def state_of(session: Session, action: str) -> ActionState:
    return session.journal.standing(action).state


# --- Taken on for later (202) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "arguments", "after"),
    [
        ("new", "put", {"body": {"cost": 2}}, {"x": {"cost": 1, "note": "n"}, "new": {"cost": 2}}),
        ("x", "put", {"body": {"cost": 2}}, {"x": {"cost": 2}}),
        ("x", "put", {"body": {"cost": 1}}, {"x": {"cost": 1}}),
        ("x", "delete", {}, {}),
    ],
    ids=["new", "other content", "less content", "deletion"],
)
def test_what_is_taken_on_for_later_is_in_doubt_until_it_shows_and_sent_once(
    serving: Serving, tmp_path: Path, name: str, operation: str, arguments: Any, after: Any
):
    service = serving(items := Items(x={"cost": 1, "note": "n"}))
    items.is_later = True
    with opened_on(service, tmp_path) as session:
        with pytest.raises(InputError, match=r"was taken on \(202\), to be done later, and does not show yet"):
            done(session, operation, "odd", id=name, **arguments)
        action = the_only(session)
        with pytest.raises(InputError, match="is still in doubt"):
            session.check_again(action)
        items.go_on()
        assert session.check_again(action).state is ActionState.EXECUTED
        assert items.items == after
        assert service.changes() == [operation.upper()]
        items.is_later = False
        session.undo(action)
        assert items.items == {"x": {"cost": 1, "note": "n"}}


def test_what_is_taken_on_and_shows_in_time_is_done(serving: Serving, tmp_path: Path):
    service = serving(items := Items(x={"cost": 1}))

    def soon(method: str, path: str, body: bytes) -> bytes:
        if method == "GET" and len(service.asked) > 5:
            items.go_on()
        return items(method, path, body)

    items.is_later, service.script = True, soon
    with opened_on(service, tmp_path, patience_s=5.0) as session:
        assert state_of(session, done(session, "put", "odd", id="x", body={"cost": 2})) is ActionState.EXECUTED
    assert items.items == {"x": {"cost": 2}}


def test_an_undo_that_is_taken_on_for_later_is_in_doubt_and_quarantines_nothing(serving: Serving, tmp_path: Path):
    service = serving(items := Items(x={"cost": 1}))
    with opened_on(service, tmp_path) as session:
        action = done(session, "put", "odd", id="x", body={"cost": 2})
        items.is_later = True
        with pytest.raises(InputError, match="does not show yet"):
            session.undo(action)
        assert state_of(session, action) is ActionState.UNDO_IN_DOUBT
        assert manager_of(session).compensations.all() == {}
    with opened_on(service, tmp_path) as session:
        assert (session.recovered, state_of(session, action)) == ([], ActionState.UNDO_IN_DOUBT)
    items.go_on()
    with opened_on(service, tmp_path) as session:  # another process sees it by itself
        assert (session.recovered, state_of(session, action)) == ([action], ActionState.UNDONE)
    assert items.items == {"x": {"cost": 1}}
    assert service.changes() == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("is_redo", "is_done", "state"),
    [
        (False, False, ActionState.UNDO_FAILED),
        (False, True, ActionState.UNDONE),
        (True, False, ActionState.UNDONE),
        (True, True, ActionState.REDONE),
    ],
)
def test_what_a_lost_service_left_in_doubt_is_settled_when_it_answers_again(
    serving: Serving, tmp_path: Path, is_redo: bool, is_done: bool, state: ActionState
):
    service = serving(items := Items(x={"cost": 1}))
    with opened_on(service, tmp_path) as session:
        action = done(session, "put", "odd", id="x", body={"cost": 2})
        if is_redo:
            session.undo(action)
        is_lost: list[str] = []

        def lose(method: str, path: str, body: bytes) -> bytes:
            answer = items(method, path, body) if is_done or method == "GET" else b""
            is_lost.extend([method] if method == "PUT" else [])
            return b"" if is_lost else answer  # nothing is answered from then on

        service.script = lose
        with pytest.raises(InputError):
            session.redo(action) if is_redo else session.undo(action)
        doubt = state_of(session, action)
        assert doubt is (ActionState.IN_DOUBT if is_redo else ActionState.UNDO_IN_DOUBT)
    with opened_on(service, tmp_path) as session:
        assert (session.recovered, state_of(session, action)) == ([], doubt)
    service.script = items
    with opened_on(service, tmp_path) as session:
        assert (session.recovered, state_of(session, action)) == ([action], state)
        assert items.items == {"x": {"cost": 2 if is_redo == is_done else 1}}


def test_a_service_that_is_away_delays_no_session(serving: Serving, tmp_path: Path):
    service = serving(items := Items(x={"cost": 1}))
    with opened_on(service, tmp_path) as session:
        action = done(session, "put", "odd", id="x", body={"cost": 2})
        items.is_later = True
        with pytest.raises(InputError, match="does not show yet"):
            session.undo(action)
        service.close()
        began = time.monotonic()
    with opened_on(service, tmp_path) as session:
        assert time.monotonic() - began < 20  # a request may take 30
        assert state_of(session, action) is ActionState.UNDO_IN_DOUBT


# --- Entity tags -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ['W/"1700000000"', '"1700000000"'])
def test_a_tag_that_stays_while_the_content_changes_does_not_say_that_nothing_was_done(
    serving: Serving, tmp_path: Path, tag: str
):
    service = serving(items := Items(x={"cost": 1}))
    items.tag, items.is_lost = tag, True
    with opened_on(service, tmp_path, guarded()) as session:
        with pytest.raises(InputError, match=r"it has changed .* and nothing proves by whom"):
            done(session, "put", "odd", id="x", body={"cost": 2})
        assert state_of(session, the_only(session)) is ActionState.IN_DOUBT
    assert service.changes() == ["PUT"]


def test_a_strong_tag_that_was_made_weak_on_the_way_names_the_same_version(serving: Serving, tmp_path: Path):
    items, version = Items(x={"cost": 1}), [1]

    def behind_a_packer(method: str, path: str, body: bytes) -> bytes:
        version[0] += method != "GET"
        items.tag = f'W/"{version[0]}"' if method == "GET" else f'"{version[0]}"'
        return items(method, path, body)

    with opened_on(serving(behind_a_packer), tmp_path, guarded()) as session:
        action = done(session, "put", "odd", id="x", body={"cost": 2})
        assert session.conflicts_of(action) == []
        session.undo(action)
    assert items.items == {"x": {"cost": 1}}


def test_only_a_tag_that_names_one_version_is_a_condition():
    part = Part("put", {}, Call("PUT", "/items/x"), guards=True)
    for tag in ('W/"1"', "*", '"a", "b"', '"caf\xe9"', '"a\tb"', '"1"\r\nX-More: 1', '"a"b"', "a b", ""):
        assert replace(part, before=State("some", tag)).guard == {}
    for tag in ('"1"', '""', "33a64df5", '"a:b/c=="'):
        assert replace(part, before=State("some", tag)).guard == {"If-Match": tag}


# --- Pages -----------------------------------------------------------------------------------------------------------

THINGS: dict[str, Any] = yaml.safe_load("""
service: odd
read_backs: {thing: {path: "/things/{id}"}, all: {path: /things}}
listings: {things: {path: /things, items: "", id: /id, next: $response.header.link}}
operations:
  make:
    method: POST
    path: /things
    body: {}
    read_back: thing
    subject: {id: $response.body#/id}
    listing: things
    undo: [{operation: delete, arguments: {id: $response.body#/id}, when: absent}]
  delete: {method: DELETE, path: "/things/{id}", read_back: thing}
  clear: {method: DELETE, path: /things, read_back: all, contents: things}
""")


class Things:
    """Two of them on each page; the answer to what makes one is lost."""

    def __init__(self, *links: str) -> None:
        self.links = links
        self.things: list[Any] = [{"id": str(number)} for number in range(3)]

    def __call__(self, method: str, path: str, body: bytes) -> bytes:
        if method == "POST":
            self.things.append({"id": f"new{len(self.things)}", **json.loads(body)})
            return b""
        number = int(path.partition("page=")[2] or 1)
        lines = [link.format(next=f"/things?page={number + 1}") for link in self.links]
        is_last = number * 2 >= len(self.things)
        return told(self.things[number * 2 - 2 : number * 2], *(() if is_last else lines))


@pytest.mark.parametrize(
    "links",
    [
        ('Link: </things?page=1>; rel="first", <{next}>; rel="next"',),
        ("Link: <{next}>; REL=NEXT",),
        ('Link: <{next}>; rel="last next"', "Link: </things?page=1>; rel=first"),
        ('Link: </things?page=9>; rel="nextfoo", <{next}>; rel="next"',),
    ],
)
def test_what_is_on_a_later_page_is_not_overlooked(serving: Serving, tmp_path: Path, links: tuple[str, ...]):
    service = serving(Things(*links))
    with opened_on(service, tmp_path, THINGS) as session:
        with pytest.raises(InputError, match="1 new ones could be what it made, and nothing proves by whom: new3"):
            done(session, "make", "odd", body={"n": 7})
        assert state_of(session, the_only(session)) is ActionState.IN_DOUBT


@pytest.mark.parametrize(
    "link", ['<a>; title="a, <b>; c"; rel="next"', "<a>; rel=next, <b>; rel=next", "<a>, rel=next"]
)
def test_a_header_of_links_with_an_unclear_next_page_is_not_the_end(link: str):
    with pytest.raises(InputError, match="header link"):
        following(link)


@given(st.text('<>;=", \\relnxtprv', max_size=60))
def test_any_header_of_links_is_read_or_refused(header: str):
    with contextlib.suppress(InputError):
        assert following(header) in header


def test_pages_of_which_the_catalogue_does_not_know_are_not_overlooked(serving: Serving, tmp_path: Path):
    listings = {"things": {**THINGS["listings"]["things"], "next": ""}}
    service = serving(Things('Link: <{next}>; rel="next"'))
    with (
        opened_on(service, tmp_path, {**THINGS, "listings": listings}) as session,
        pytest.raises(InputError, match="has more pages than its catalogue knows of"),
    ):
        session.propose(asked("make", "odd", body={}))
    assert service.changes() == []


@pytest.mark.parametrize("item", [{"x": 1}, {"id": ""}, {"id": True}, "text"])
def test_things_without_identifiers_are_not_counted_as_one(serving: Serving, tmp_path: Path, item: Any):
    service = serving(lambda method, path, body: told([item]))
    with (
        opened_on(service, tmp_path, THINGS) as session,
        pytest.raises(InputError, match=r"has no identifier at '/id' \(listings.id in its catalogue\)"),
    ):
        session.propose(asked("clear", "odd"))


# --- Shown otherwise than the catalogue has it -----------------------------------------------------------------------


@pytest.mark.parametrize("shown", [b"", b"null"])
def test_where_nothing_is_shown_to_be_put_back_it_is_said_before(serving: Serving, tmp_path: Path, shown: bytes):
    service = serving(lambda method, path, body: answer(shown) if method == "GET" else told({}))
    with opened_on(service, tmp_path) as session:
        plan = session.plan(asked("delete", "odd", id="x"))
        assert plan.guarantee is Guarantee.NONE
        assert plan.changes == ("delete: DELETE /items/x; cannot be taken back",)
        action = session.propose(asked("put", "odd", id="x", body={"cost": 1}))
        session.run(action.action, action.plan.digest)
        with pytest.raises(InputError, match=r"put needs \$before.body to take it back, and there is"):
            session.undo(action.action)
    assert service.changes() == ["PUT"]


# --- Whatever comes --------------------------------------------------------------------------------------------------


def test_an_answer_that_says_twice_how_it_is_packed_is_not_read_as_plain(serving: Serving, tmp_path: Path):
    packed = gzip.compress(b'{"cost": 1}')  # a key in it could not be seen
    lines = ("Content-Encoding: gzip", "Content-Encoding: identity")
    service = serving(lambda method, path, body: answer(packed, "application/json", *lines))
    with (
        opened_on(service, tmp_path) as session,
        pytest.raises(HostError, match="is encoded as 'gzip,identity', which was not asked for"),
    ):
        session.plan(asked("get", "odd", id="x"))


ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD_LINES = st.sampled_from([
    "", "ETag: *", 'ETag: W/"x"', "ETag: \xe9", "Location: //[", "Retry-After: -1", "Retry-After: 0", "Link: <",
    "Content-Encoding: br", "Content-Length: 1", "Transfer-Encoding: chunked", "Content-Type: text/x; charset=\xff",
    "WWW-Authenticate: Bearer error=invalid_token",
])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(100, 999), ODD_JSON, ODD_LINES), min_size=1, max_size=6), st.data())
def test_whatever_a_service_answers_an_action_ends_in_a_state(
    tmp_path_factory: pytest.TempPathFactory, answers: list[tuple[int, Any, str]], data: st.DataObject
):
    left = list(answers)

    def odd(method: str, path: str, body: bytes) -> bytes:
        status, content, line = left.pop(0) if left else (200, {"cost": 1}, "")
        text = json.dumps(content).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        return head.encode() + (line + "\r\n" if line else "").encode("latin-1") + b"\r\n" + text

    operation, arguments = data.draw(
        st.sampled_from(
            [("put", {"id": "x", "body": {"cost": 2}}), ("delete", {"id": "x"}), ("on", {"body": {"id": "x"}})]
        )
    )
    folder = tmp_path_factory.mktemp("odd")
    limits = {"patience_s": 0.02, "most_wait_s": 0.02, "timeout_s": 0.5}
    with ScriptedService(odd) as service, opened_on(service, folder, guarded(), **limits) as session:
        with contextlib.suppress(AutoclaveError):
            session.undo(done(session, operation, "odd", **arguments))
        for standing in session.journal.standings():
            assert standing.state not in (ActionState.EXECUTING, ActionState.UNDOING)
