"""Whatever happens to a request or its answer, it is done once or not at all, and the journal says which."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import HostError, InputError
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import (
    Reader,
    asked,
    before_each,
    connection,
    done,
    opened,
    secret,
    without_keys,
    written,
)
from tests.runtime.rest.faulty_proxy import FAULTS, Fault, FaultyProxy
from tests.runtime.rest.odd_service import CATALOGUE, OddService

S = ActionState
CHANGES: list[dict[str, Any]] = [
    {"operation": "create_record", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "own-id", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "one", "body": {"data": {"title": "other"}}},
    {"operation": "delete_record", "id": "one"},
]


AFTER: tuple[Fault, ...] = ("cut_after", "half", "gateway_after", "resent")
"""Faults by which it is done, and the answer to it is lost."""


def done_or_said(session: Session, given: dict[str, Any]) -> tuple[str, ActionState]:
    """Propose and run; where no one can tell, a person says that it was done. The action, and how the run left it."""
    proposal = session.propose(given)
    with contextlib.suppress(InputError):
        session.run(proposal.action, proposal.plan.digest)
    state = session.journal.standing(proposal.action).state
    if state is S.IN_DOUBT:
        session.resolve(proposal.action, S.EXECUTED, "by the service's own account")
    return proposal.action, state


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: f"{each['operation']}-{each.get('id', '')}")
def test_a_fault_in_act_undo_and_redo_neither_loses_nor_doubles_anything(
    shaky: Session, reader: Reader, proxy: FaultyProxy, fault: Fault, change: dict[str, Any]
):
    reader.put("one", title="first")
    before = reader.records()
    proxy.faults(fault)
    action, state = done_or_said(shaky, asked(**reader.where, **change))
    # any deletion leaves the same; a refused change may be one that somebody else made alike
    is_named_by_us = change["operation"] == "create_record"
    is_unproven = (change["operation"] == "delete_record" and fault in AFTER) or (
        fault == "resent" and not is_named_by_us
    )
    assert state is (S.IN_DOUBT if is_unproven else S.EXECUTED)
    after = reader.records()
    assert after != before
    assert abs(len(after) - len(before)) <= 1
    proxy.faults(fault)
    shaky.undo(action)
    assert reader.records() == before
    proxy.faults(fault)
    shaky.redo(action)
    assert reader.records() == after
    assert shaky.journal.standing(action).state is S.REDONE
    assert sum(each == fault for _, _, each in proxy.seen) == 3


def test_what_has_no_key_and_was_done_is_named_and_a_person_says_that_it_is_ours(
    unkeyed: Session, reader: Reader, proxy: FaultyProxy
):
    for number in range(25):  # ten on a page
        reader.put(f"r{number}", n=number)
    before = reader.records()
    proxy.before_forwarding = lambda method: (
        [reader.put(f"late{n}", n=-n) for n in range(25)] if method == "POST" else None
    )
    proxy.faults("cut_after")
    given = asked("create_record", **reader.where, body={"data": {"n": 100}})
    proposal = unkeyed.propose(given)
    with pytest.raises(InputError, match="1 new ones could be what it made, and nothing proves by whom"):
        unkeyed.run(proposal.action, proposal.plan.digest)
    assert unkeyed.resolve(proposal.action, S.EXECUTED, "I looked").state is S.EXECUTED
    (made,) = [name for name, data in reader.records().items() if data == {"n": 100}]
    assert unkeyed.journal.standing(proposal.action).body["writes"][0].endswith(made)
    assert [method for method, _, _ in proxy.seen].count("POST") == 1
    unkeyed.undo(proposal.action)
    assert made not in reader.records()
    assert reader.records().keys() >= before.keys()


def test_what_arrives_after_the_client_was_cut_off_is_done_once(shaky: Session, reader: Reader, proxy: FaultyProxy):
    proxy.faults("late")
    done(shaky, "create_record", **reader.where, body={"data": {"n": 1}})
    proxy.faults("late")
    done(shaky, "put_record", **reader.where, id="one", body={"data": {"n": 2}})
    proxy.close()  # all that was under way has arrived
    assert sorted(data["n"] for data in reader.records().values()) == [1, 2]


@pytest.mark.parametrize("later_s", [3600, -3600], ids=["long ago", "clock set back"])
def test_what_was_lost_long_ago_is_not_sent_again_but_looked_up(
    shaky: Session, reader: Reader, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, later_s: int
):
    now = time.time()
    before_each(shaky, "find_out", lambda: monkeypatch.setattr(time, "time", lambda: now + later_s))
    proxy.faults("cut_before")
    begun = time.monotonic()
    given = asked("create_record", **reader.where, body={"data": {"n": 1}})
    assert done_or_said(shaky, given)[1] is S.FAILED
    assert time.monotonic() - begun < 60  # and not the hour
    assert [method for method, _, _ in proxy.seen].count("POST") == 1


def test_an_answer_that_takes_too_long_is_in_doubt_and_settled(proxy: FaultyProxy, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    proxy.delay_s = 4.0
    with opened(tmp_path, {"kinto": connection(proxy.port, timeout_s=2.0)}, secret(proxy.port)) as session:
        proxy.faults("delay")
        place = reader.where
        action = done(session, "create_record", **place, body={"data": {"n": 1}})
        proxy.faults("delay")
        session.undo(action)
        proxy.faults("delay")
        done(session, "delete_record", **place, id="one")
        proxy.close()  # what was late has arrived
    assert reader.records() == {}
    assert sorted(event for event, _ in reader.history()) == ["create", "create", "delete", "delete"]


def test_without_a_connection_nothing_was_sent_and_it_has_failed(shaky: Session, reader: Reader, proxy: FaultyProxy):
    reader.put("one", title="first")
    proposal = shaky.propose(asked("delete_record", **reader.where, id="one"))
    before_each(shaky, "execute", proxy.close)
    with pytest.raises(HostError, match="nothing was sent"):
        shaky.run(proposal.action, proposal.plan.digest)
    assert shaky.journal.standing(proposal.action).state is S.FAILED
    assert list(reader.records()) == ["one"]


def test_where_nothing_shows_whether_it_was_done_it_is_not_sent_again(
    proxy: FaultyProxy, reader: Reader, tmp_path: Path
):
    given = {"do": "request", "service": "kinto", "method": "POST", "path": f"{reader.place}/records?x=1"}
    given |= {"body": {"data": {"n": 1}}}
    with opened(tmp_path, {"kinto": connection(proxy.port, catalogue="", queue_s=0.0)}, secret(proxy.port)) as session:
        proxy.faults("cut_after")
        proposal = session.propose(given)
        with pytest.raises(InputError, match="nothing shows whether it was done"):
            session.run(proposal.action, proposal.plan.digest)
        with pytest.raises(InputError, match="still in doubt"):
            session.check_again(proposal.action)
        assert [method for method, _, _ in proxy.seen].count("POST") == 1
        assert session.resolve(proposal.action, S.EXECUTED, "I looked").state is S.EXECUTED
        with pytest.raises(InputError, match="cannot be taken back"):
            session.undo(proposal.action)
    assert list(reader.records().values()) == [{"n": 1}]


@pytest.mark.parametrize(("operation", "state"), [("send", S.IN_DOUBT), ("put", S.FAILED)])
def test_what_a_gateway_asks_to_bring_again_later_may_have_been_done_and_is_not_sent_again(
    tmp_path: Path, operation: str, state: ActionState
):
    with OddService(num_limited=1, limit_status=503, limits_methods=("POST", "PUT")) as service:
        settings = {"catalogue": written(tmp_path, CATALOGUE), "secret": "", "queue_s": 0.0}
        with opened(tmp_path, {"odd": connection(service.port, **settings)}) as session:
            given: dict[str, Any] = {} if operation == "send" else {"id": "x"}
            assert done_or_said(session, asked(operation, "odd", **given, body={"cost": 0}))[1] is state
        assert [method for method, _, _ in service.requests if method != "GET"] == [
            "POST" if operation == "send" else "PUT"
        ]


# --- Somebody else meanwhile -----------------------------------------------------------------------------------------


def lost_while(proxy: FaultyProxy, method: str, act: Any) -> None:
    """The next request with a method does not reach the service; somebody else acts in its place."""
    left = [act]

    def choose(given: str, path: str) -> Fault:
        if given == method and left:
            left.pop()()
            return "cut_before"
        return "none"

    proxy.choose = choose


@pytest.mark.parametrize(
    ("operation", "method", "given", "first", "theirs"),
    [
        ("put_record", "PUT", {"title": "ours"}, None, {"title": "ours", "body": "theirs"}),
        ("put_record", "PUT", {}, None, {"wholly": "different"}),
        ("put_record", "PUT", {"title": "ours"}, {"title": "first"}, {"title": "ours", "tags": ["theirs"]}),
        ("patch_record", "PATCH", {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": "theirs", "c": "theirs"}),
        ("patch_record", "PATCH", {"a": 2}, {"a": 1, "b": 1}, {"a": 2}),
        ("delete_record", "DELETE", None, {"a": 1}, None),
        ("delete_record", "DELETE", None, {"a": 1}, {"a": 1}),
    ],
    ids=[
        "more than ours",
        "all else",
        "more in place",
        "more of a change",
        "less of a change",
        "deleted",
        "the same again",
    ],
)
def test_what_somebody_else_did_meanwhile_is_in_doubt_and_stays(
    shaky: Session, reader: Reader, proxy: FaultyProxy, operation: str, method: str, given: Any, first: Any, theirs: Any
):
    if first is not None:
        reader.put("one", **first)
    lost_while(proxy, method, lambda: reader.delete("one") if theirs is None else reader.put("one", **theirs))
    place = {**reader.where, "id": "one"}
    proposal = shaky.propose(asked(operation, **place, **({} if given is None else {"body": {"data": given}})))
    with pytest.raises(InputError, match="nothing proves by whom"):
        shaky.run(proposal.action, proposal.plan.digest)
    assert shaky.journal.standing(proposal.action).state is S.IN_DOUBT
    with pytest.raises(InputError, match="undone"):
        shaky.undo(proposal.action)
    assert reader.records() == ({} if theirs is None else {"one": theirs})


@pytest.mark.parametrize("is_race", [True, False])
def test_a_record_that_was_there_is_not_taken_over_by_one_of_the_same_id(
    proxy: FaultyProxy, reader: Reader, tmp_path: Path, is_race: bool
):
    def somebody_else(method: str) -> None:
        if method == "POST":
            reader.put("shared", title="theirs")

    if is_race:
        proxy.before_forwarding = somebody_else
    else:
        somebody_else("POST")
    body = {"data": {"id": "shared", "title": "ours"}}
    given = asked("create_record", **reader.where, body=body)
    with opened(tmp_path, {"kinto": connection(proxy.port, queue_s=0.0)}, secret(proxy.port)) as session:
        assert done_or_said(session, given)[1] is S.FAILED
    assert reader.records() == {"shared": {"title": "theirs"}}


# --- Many faults -----------------------------------------------------------------------------------------------------


def act_under_faults(session: Session, reader: Reader, proxy: FaultyProxy, number: int, seed: int) -> int:
    """So many faults in random acts and undos, with a plain dict beside; how many effects there should have been."""
    draw = random.Random(seed)
    expected, undoable, num_effects, num_faults = dict[str, Any](), list[tuple[str, dict[str, Any]]](), 0, 0
    while num_faults < number:
        is_plain = draw.random() < 0.2  # whose faults can be told by a listing only
        fault = draw.choice([each for each in FAULTS if not (is_plain and each in ("twice", "resent"))])
        proxy.faults(fault)
        before = dict(expected)
        kind = draw.choice(["create", "create", "put", "patch", "delete", "undo"])
        data = {"n": draw.randrange(10**9)}
        names = sorted(expected)
        if kind == "undo" and undoable:
            action, wanted = undoable.pop()
            session.undo(action)
            expected = wanted
        elif kind == "create" or not names:
            service = "plain" if is_plain else "kinto"
            given = asked("create_record", service, **reader.where, body={"data": data})
            action, state = done_or_said(session, given)
            assert (state is S.IN_DOUBT) == (is_plain and fault in (*AFTER, "empty"))  # 200 in place of 201
            assert (state is S.FAILED) == (is_plain and fault in ("cut_before", "gateway_before"))
            if state is S.FAILED:
                num_faults += 1
                continue
            made = str(session.journal.standing(action).body["part"]["subject"]["target"])
            expected[made.rpartition("/")[2]] = data
            undoable.append((action, before))
        else:
            place = {**reader.where, "id": draw.choice(names)}
            body = {} if kind == "delete" else {"body": {"data": data}}
            given = asked(f"{kind if kind != 'undo' else 'put'}_record", **place, **body)
            action, state = done_or_said(session, given)
            is_unproven = fault == "resent" or (kind == "delete" and fault in AFTER)
            assert state is (S.IN_DOUBT if is_unproven else S.EXECUTED)
            undoable.append((action, before))
            expected.pop(place["id"]) if kind == "delete" else expected.update({place["id"]: data})
        num_effects += 1
        num_faults += 1
    assert reader.records() == expected
    return num_effects


@pytest.mark.parametrize("number", [60, pytest.param(2000, marks=pytest.mark.soak)])
def test_under_many_faults_nothing_is_lost_and_nothing_done_twice(
    proxy: FaultyProxy, reader: Reader, tmp_path: Path, number: int
):
    proxy.delay_s = 0.01
    services = {"kinto": connection(proxy.port), "plain": connection(proxy.port, catalogue=without_keys(tmp_path))}
    with opened(tmp_path, services, secret(proxy.port)) as session:
        num_effects = act_under_faults(session, reader, proxy, number, seed=number)
        assert session.audit() == []
        assert session.journal.standings((S.IN_DOUBT, S.UNDO_IN_DOUBT)) == []
    assert sum(fault != "none" for _, _, fault in proxy.seen) >= number
    assert len(reader.history()) == num_effects  # by the service's own account of what was done
