"""Actions on a real Kinto are taken back, as another client of it sees; others' changes are left alone."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, NothingLeft, NotUndone
from autoclave.runtime.rest.compensations import ProofStatus
from autoclave.runtime.rest.undoing import Compensator
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, asked, before_each, connection, done, manager_of, opened, secret
from tests.runtime.rest.faulty_proxy import FaultyProxy

S = ActionState
CHANGES: list[dict[str, Any]] = [
    {"operation": "create_record", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "own-id", "body": {"data": {"title": "new"}}},
    {"operation": "put_record", "id": "one", "body": {"data": {"title": "other"}}},
    {"operation": "patch_record", "id": "one", "body": {"data": {"more": [1, {"a": None}], "title": "other"}}},
    {"operation": "delete_record", "id": "one"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: f"{each['operation']}-{each.get('id', '')}")
def test_what_was_done_is_taken_back_done_again_and_taken_back(
    session: Session, reader: Reader, change: dict[str, Any]
):
    reader.put("one", title="first", tags=["a", "b"])
    reader.put("two", title="second")
    before = reader.records()
    action = done(session, **reader.where, **change)
    after = reader.records()
    assert after != before
    assert session.undo(action) == [action]
    assert reader.records() == before
    assert session.journal.standing(action).state is S.UNDONE
    session.redo(action)
    assert reader.records() == after
    session.undo(action)
    assert reader.records() == before
    assert session.audit() == []


# --- Others ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "theirs"),
    [
        ({"operation": "put_record", "id": "one", "body": {"data": {"title": "ours"}}}, {"one": {"title": "theirs"}}),
        ({"operation": "delete_record", "id": "one"}, {"one": {"title": "theirs"}}),
        ({"operation": "put_record", "id": "new", "body": {"data": {"title": "ours"}}}, {"new": {"title": "theirs"}}),
        ({"operation": "patch_record", "id": "one", "body": {"data": {"title": "ours"}}}, {"one": None}),
    ],
    ids=["changed", "made again", "changed new one", "deleted"],
)
def test_a_choice_says_what_becomes_of_theirs(session: Session, reader: Reader, change: Any, theirs: Any):
    reader.put("one", title="first")
    before = reader.records()
    for choice in (Choice.SKIP, Choice.FORCE):
        action = done(session, **reader.where, **change)
        for name, data in theirs.items():
            reader.delete(name) if data is None else reader.put(name, **data)
        with_theirs = reader.records()
        assert session.conflicts_of(action) == [f"services/kinto{reader.place}/records/{next(iter(theirs))}"]
        with pytest.raises(InputError, match=r"somebody else has changed .* since; nothing was taken back"):
            session.undo(action)
        assert reader.records() == with_theirs
        with pytest.raises(NothingLeft) if choice is Choice.SKIP else contextlib.nullcontext():
            session.undo(action, on_conflict=choice)
        now = reader.records()
        if choice is Choice.SKIP:
            assert now == with_theirs
            reader.put("one", title="first")
            if "new" in now:
                reader.delete("new")
            continue
        assert now == before
        session.redo(action)  # theirs comes again
        assert reader.records() == with_theirs
        session.undo(action)
        assert reader.records() == before
    action = done(session, **reader.where, **change)
    for name, data in theirs.items():
        reader.delete(name) if data is None else reader.put(name, **data)
    with pytest.raises(InputError, match="services have no save_aside; choose skip or force"):
        session.undo(action, on_conflict=Choice.SAVE_ASIDE)


def test_a_change_in_the_last_moment_is_found_by_the_entity_tag(shaky: Session, reader: Reader, proxy: FaultyProxy):
    reader.put("one", title="first")
    given = {**reader.where, "id": "one", "body": {"data": {"title": "ours"}}}
    proxy.before_forwarding = lambda method: reader.put("one", title="theirs") if method == "PUT" else None
    proposal = shaky.propose(asked("put_record", **given))
    with pytest.raises(InputError, match=r"412.*: somebody else has changed it meanwhile"):
        shaky.run(proposal.action, proposal.plan.digest)
    assert shaky.journal.standing(proposal.action).state is S.FAILED
    assert reader.records() == {"one": {"title": "theirs"}}
    proxy.before_forwarding = lambda method: None
    action = done(shaky, "put_record", **given)
    proxy.before_forwarding = lambda method: reader.put("one", title="again") if method == "PUT" else None
    with pytest.raises(NotUndone, match="somebody else has changed it meanwhile"):
        shaky.undo(action)
    assert shaky.journal.standing(action).state is S.UNDO_FAILED
    assert reader.records() == {"one": {"title": "again"}}
    proxy.before_forwarding = lambda method: None
    shaky.undo(action, on_conflict=Choice.FORCE)
    assert reader.records() == {"one": {"title": "theirs"}}


def test_a_change_right_after_ours_is_not_taken_for_ours(shaky: Session, reader: Reader, proxy: FaultyProxy):
    reader.put("one", title="first")
    methods: list[str] = []

    def right_after(method: str) -> None:
        methods.append(method)
        if methods[-2:] == ["PUT", "GET"] and methods.count("PUT") == 1:
            reader.put("one", title="theirs")

    proxy.before_forwarding = right_after
    place = {**reader.where, "id": "one"}
    action = done(shaky, "put_record", **place, body={"data": {"title": "ours"}})
    with pytest.raises(InputError, match="somebody else has changed"):
        shaky.undo(action)
    assert reader.records() == {"one": {"title": "theirs"}}


# --- Several ---------------------------------------------------------------------------------------------------------


def test_later_actions_on_the_same_are_named_and_taken_back_with_it(session: Session, reader: Reader):
    place = {"bucket": reader.bucket, "collection": "drafts"}
    made = done(session, "put_collection", **place)
    record = done(session, "create_record", **place, body={"data": {"n": 1}})
    apart = done(session, "put_record", **reader.where, id="x", body={"data": {}})
    with pytest.raises(InputError, match=f"{record} came later and depend on it"):
        session.undo(made)
    assert session.undo(made, dependents=True) == [record, made]
    assert reader.ask("GET", f"/v1/buckets/{reader.bucket}/collections/drafts")[0] == 404
    assert session.undo(apart) == [apart]


def test_what_others_put_into_a_new_collection_is_not_deleted_with_it(session: Session, reader: Reader):
    drafts = Reader(reader.port, reader.bucket, "drafts")
    action = done(session, "put_collection", bucket=reader.bucket, collection="drafts")
    drafts.put("theirs", n=1)
    with pytest.raises(InputError, match="there are 1 things in it, which would go with it"):
        session.undo(action)
    assert list(drafts.records()) == ["theirs"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_in_a_collection_is_counted_again_before_it_is_deleted(
    kinto: int, reader: Reader, tmp_path: Path, is_killed: bool
):
    drafts, services = Reader(reader.port, reader.bucket, "drafts"), {"kinto": connection(kinto)}
    with opened(tmp_path, services) as session:
        action = done(session, "put_collection", bucket=reader.bucket, collection="drafts")
        if not is_killed:
            before_each(session, "undo", lambda: drafts.put("theirs", n=1))
            with pytest.raises(NotUndone, match="there are 1 things in it"):
                session.undo(action)
    if is_killed:
        child = os.fork()
        if child == 0:
            Compensator.done = lambda *given: os._exit(9)  # what it is to do is recorded, and nothing is sent
            with opened(tmp_path, services) as session:
                session.undo(action)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        drafts.put("theirs", n=1)
        with opened(tmp_path, services) as session:
            assert session.journal.standing(action).state is S.UNDO_FAILED
    assert list(drafts.records()) == ["theirs"]


def test_only_an_empty_collection_can_come_back(session: Session, reader: Reader):
    reader.put("one", title="first")
    given = asked("delete_collection", **reader.where)
    assert session.plan(given).guarantee is Guarantee.NONE
    reader.delete("one")
    assert session.plan(given).guarantee is Guarantee.EQUIVALENT
    action = done(session, "delete_collection", **reader.where)
    assert reader.ask("GET", reader.place)[0] == 404
    session.undo(action)
    assert reader.ask("GET", reader.place)[0] == 200


def test_a_plan_for_a_collection_is_none_for_one_with_more_in_it(kinto: int, reader: Reader, tmp_path: Path):
    given = asked("delete_collection", **reader.where)
    with opened(tmp_path, {"kinto": connection(kinto, queue_s=0.0)}) as session:
        for name in ("one", "two"):
            proposal = session.propose(given)
            reader.put(name, title="somebody needs this")
            with pytest.raises(InputError, match="has changed since it was planned"):
                session.run(proposal.action, proposal.plan.digest)
    assert sorted(reader.records()) == ["one", "two"]


def test_a_plan_whose_undo_was_found_wrong_since_is_not_run(session: Session, reader: Reader):
    given = asked("put_record", **reader.where, id="one", body={"data": {}})
    proposal, compensations = session.propose(given), manager_of(session).compensations
    for compensation, (operation, _) in manager_of(session).declared_compensations().items():
        if operation == "put_record":
            compensations.record(compensation, ProofStatus.QUARANTINED, "it did not come back")
    with pytest.raises(InputError, match="has changed since it was planned"):
        session.run(proposal.action, proposal.plan.digest)
    assert reader.records() == {}


def test_an_undo_that_the_key_is_not_for_is_told_before_anything_is_done(kinto: int, reader: Reader, tmp_path: Path):
    given = asked("put_record", **reader.where, id="mine-1", body={"data": {}})
    for of_key, guarantee in (
        ({"methods": ("GET", "PUT")}, Guarantee.NONE),
        ({"paths": ("/v1/buckets/*/collections/*/records/mine-*",)}, Guarantee.EXACT),
    ):
        (folder := tmp_path / next(iter(of_key))).mkdir()
        with opened(folder, {"kinto": connection(kinto)}, secret(kinto, **of_key)) as session:
            plan = session.plan(given)
        assert plan.guarantee is guarantee
        told = "cannot be taken back: delete_record could, but DELETE /v1/"
        assert (told in plan.changes[0]) == (guarantee is Guarantee.NONE)


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_what_only_reads_is_answered_when_it_is_planned_and_changes_nothing(session: Session, reader: Reader):
    reader.put("one", title="first")
    proposal = session.propose(asked("get_record", **reader.where, id="one"))
    assert json.loads(proposal.plan.output["stdout"])["data"]["title"] == "first"
    assert proposal.plan.guarantee is Guarantee.EXACT
    reader.put("one", title="other")
    assert session.run(proposal.action, proposal.plan.digest).state is S.READ
    assert reader.records() == {"one": {"title": "other"}}
    with pytest.raises(InputError, match="answered 404"):
        session.propose(asked("get_record", **reader.where, id="nothing"))


def test_large_bodies_are_kept_beside_the_journal_and_come_back(session: Session, reader: Reader, tmp_path: Path):
    data = {"text": "ä\n\u2028" * 50_000, "$kept": "a name like ours"}
    reader.put("one", **data)
    action = done(session, "delete_record", **reader.where, id="one")
    assert len(str([record.body for record in session.journal.records(action)])) < 20_000
    assert (session.journal.standing(action).kept_bytes or 0) > 150_000
    session.undo(action)
    assert reader.records() == {"one": data}
    session.redo(action)
    session.undo(action)
    assert reader.records() == {"one": data}
    other = done(session, "delete_record", **reader.where, id="one")
    session.commit(other)
    assert not (tmp_path / "rest" / other).exists()


def test_what_would_be_and_was_changed_is_shown_as_lines(session: Session, reader: Reader):
    reader.put("one", title="first")
    given = asked("patch_record", **reader.where, id="one", body={"data": {"title": "other"}})
    proposal = session.propose(given)
    assert any('+    "title": "other"' in line for line in session.difference(proposal.action))
    session.run(proposal.action, proposal.plan.digest)
    lines = session.difference(proposal.action)
    assert '-    "title": "first"' in [line.rstrip(",") for line in lines]
