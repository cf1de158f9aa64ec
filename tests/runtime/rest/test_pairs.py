"""An inverse is believed when the service shows what it showed before; one that is wrong is wrong once."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotUndone
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.expressions import is_general, normal
from autoclave.runtime.rest.pairs import Match, PairStatus
from autoclave.runtime.rest.parts import part_from
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, asked, connection, done, manager_of, opened
from tests.runtime.rest.catalogues import plain, written
from tests.runtime.rest.odd_service import CATALOGUE, OddService

S = ActionState
RIGHT = {
    "operation": "put_record",
    "arguments": {
        "bucket": "$request.path.bucket",
        "collection": "$request.path.collection",
        "id": "$request.path.id",
        "body": {"data": {"of": "$before.body#/data", "without": ["/last_modified"]}},
    },
}
OF_PATH = {name: f"$request.path.{name}" for name in ("bucket", "collection", "id")}


def with_undo(folder: Path, operation: str, *undo: Mapping[str, Any]) -> str:
    """Kinto's catalogue with other inverses of one operation."""
    catalogue = plain("kinto")
    catalogue["operations"][operation]["undo"] = list(undo)
    return written(folder, catalogue)


def change(reader: Reader, **data: Any) -> dict[str, Any]:
    return {"bucket": reader.bucket, "collection": "notes", "id": "one", "body": {"data": data}}


def statuses(session: Session) -> list[PairStatus]:
    return [each.status for each in manager_of(session).pairs.all().values()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "patch_record", "arguments": {**OF_PATH, "body": {"data": {"title": "nonsense"}}}},
        {"operation": "delete_record", "arguments": OF_PATH},
        {"operation": "put_record", "arguments": {**OF_PATH, "body": {"data": {}}}, "status": "pinned"},
    ],
    ids=["other content", "deleted", "pinned all the same"],
)
def test_a_wrong_pair_is_found_out_taken_back_and_never_used_again(
    kinto: int, reader: Reader, tmp_path: Path, wrong: dict[str, Any]
):
    reader.put("one", title="first")
    services = {"kinto": connection(kinto, catalogue=with_undo(tmp_path, "patch_record", wrong))}
    with opened(tmp_path, services) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(NotUndone, match="it is not as it was before; this inverse is not used again"):
            session.undo(action)
        assert reader.records() == {"one": {"title": "ours"}}  # what the wrong one did was taken back
        assert session.journal.standing(action).state is S.UNDO_FAILED
        assert PairStatus.QUARANTINED in statuses(session)
        num_events = len(reader.history())
        with pytest.raises(InputError, match=r"is quarantined: .*not as it was before"):
            session.undo(action)
        plan = session.plan(asked("patch_record", **change(reader, title="other")))
        assert plan.guarantee is Guarantee.NONE
        assert "cannot be taken back" in plan.changes[0]
        assert len(reader.history()) == num_events
    with opened(tmp_path, services) as session:  # also by those that come later
        assert session.plan(asked("patch_record", **change(reader, title="x"))).guarantee is Guarantee.NONE


def test_after_a_wrong_inverse_the_next_one_in_the_catalogue_is_used(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    wrong = {"operation": "delete_record", "arguments": OF_PATH}
    services = {"kinto": connection(kinto, catalogue=with_undo(tmp_path, "patch_record", wrong, RIGHT))}
    with opened(tmp_path, services) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(NotUndone):
            session.undo(action)
        session.undo(action)
        assert reader.records() == {"one": {"title": "first"}}
        assert sorted(statuses(session)) == [PairStatus.PROVEN, PairStatus.QUARANTINED]


def test_a_pair_is_proven_each_time_that_it_was_seen_to_work(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    services = {"kinto": connection(kinto, catalogue=with_undo(tmp_path, "patch_record", RIGHT))}
    with opened(tmp_path, services) as session:
        given = asked("patch_record", **change(reader, title="ours"))
        assert session.plan(given).changes[0].endswith("undo: put_record, equivalent (unproven)")
        for number in range(1, 3):
            session.undo(done(session, "patch_record", **change(reader, title="ours")))
            assert session.plan(given).changes[0].endswith(f"equivalent (proven {number} times)")


def test_in_strict_mode_only_pinned_pairs_count(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    catalogue = with_undo(tmp_path, "patch_record", RIGHT)
    services = {"kinto": connection(kinto, catalogue=catalogue, is_strict=True, hold_s=0.0)}
    with opened(tmp_path, services) as session:
        given = asked("patch_record", **change(reader, title="ours"))
        assert session.plan(given).guarantee is Guarantee.NONE
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(InputError, match="no inverse is pinned, and this connection is strict"):
            session.undo(action)
        manager = manager_of(session)
        (pair,) = [name for name, (_, operation, _) in manager.inverses().items() if operation == "patch_record"]
        manager.pairs.pin(pair, "I have read the documentation")
        assert session.plan(given).guarantee is Guarantee.EQUIVALENT
        session.undo(action)
    assert reader.records() == {"one": {"title": "first"}}


def test_what_a_user_says_counts_like_what_was_seen(session: Session, reader: Reader):
    pairs = manager_of(session).pairs
    pairs.judge("kinto/x/1", "it is back", is_good=True)
    assert pairs.learnt("kinto/x/1").status is PairStatus.PROVEN
    pairs.judge("kinto/x/1", "it is not", is_good=False)
    assert pairs.learnt("kinto/x/1").status is PairStatus.QUARANTINED
    pairs.prove("kinto/x/1")
    assert pairs.learnt("kinto/x/1").status is PairStatus.QUARANTINED  # once broken is broken
    pairs.pin("kinto/x/1", "fixed")
    assert pairs.learnt("kinto/x/1").status is PairStatus.PINNED


@pytest.mark.parametrize(
    ("match", "is_same"),
    [
        (Match.NAME, {"arguments": True, "schema": True}),
        (Match.NAME_AND_SCHEMA, {"arguments": True, "schema": False}),
        (Match.EXACT, {"arguments": False, "schema": True}),
    ],
)
def test_the_match_policy_says_what_is_the_same_pair(session: Session, match: Match, is_same: dict[str, bool]):
    manager = manager_of(session)
    spec, undo = manager._services["kinto"].spec("patch_record"), Undo.model_validate(RIGHT)
    name = manager.pairs.name(match, "kinto", "patch_record", spec, {"id": "one"}, undo)
    other_arguments = manager.pairs.name(match, "kinto", "patch_record", spec, {"id": "two"}, undo)
    other = spec.model_copy(update={"path": "/v2/other"})
    other_schema = manager.pairs.name(match, "kinto", "patch_record", other, {"id": "one"}, undo)
    assert {"arguments": name == other_arguments, "schema": name == other_schema} == is_same
    inverse = undo.model_copy(update={"operation": "delete_record"})
    assert name != manager.pairs.name(match, "kinto", "patch_record", spec, {"id": "one"}, inverse)


def test_when_the_window_is_over_it_cannot_be_taken_back(
    kinto: int, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reader.put("one", title="first")
    catalogue = with_undo(tmp_path, "patch_record", {**RIGHT, "window_s": 30})
    with opened(tmp_path, {"kinto": connection(kinto, catalogue=catalogue)}) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        again = done(session, "patch_record", **change(reader, title="more"))
        session.undo(again)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 31)
        with pytest.raises(InputError, match="could be taken back for 30 s, and that time is over"):
            session.undo(action)
        monkeypatch.setattr(time, "time", lambda: now - 3600)
        with pytest.raises(InputError, match="the clock was set back since, so nobody can tell"):
            session.undo(action)
    assert reader.records() == {"one": {"title": "ours"}}


# --- Proposed by a model ---------------------------------------------------------------------------------------------


class Model:
    """Proposes what it was given, and keeps what it was asked."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    def __call__(self, request: Any, response: Any, specification: Any) -> Mapping[str, Any]:
        self.asked.append((request, response, specification))
        return self.answers.pop(0)


def opened_with(model: Model, kinto: int, folder: Path) -> Session:
    """A session whose catalogue has no inverse of a change, and a model to ask."""
    services = {"kinto": connection(kinto, catalogue=with_undo(folder, "patch_record"), hold_s=0.0)}
    return opened(folder, services, propose_inverse=model)


def test_where_the_catalogue_has_none_a_model_proposes_and_is_asked_once(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    model = Model(RIGHT)
    with opened_with(model, kinto, tmp_path) as session:
        plan = session.plan(asked("patch_record", **change(reader, title="ours")))
        assert plan.guarantee is Guarantee.NONE
        assert "a model has to propose it, unproven" in plan.changes[0]
        action = done(session, "patch_record", **change(reader, title="ours"))
        session.undo(action)
        assert reader.records() == {"one": {"title": "first"}}
        (request, response, operations) = model.asked[0]
        assert request["before"]["data"]["title"] == "first"
        assert response["body"]["data"]["title"] == "ours"
        assert "delete_record" in operations
        assert "get_record" not in operations
        again = done(session, "patch_record", **change(reader, title="more"))  # proven by now: nobody is asked
        session.undo(again)
        assert reader.records() == {"one": {"title": "first"}}
        assert len(model.asked) == 1


def test_what_a_model_proposes_wrongly_is_tried_once_and_not_again(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    wrong = {"operation": "patch_record", "arguments": {**OF_PATH, "body": {"data": {"title": "$request.path.id"}}}}
    model = Model(wrong, wrong, RIGHT)
    with opened_with(model, kinto, tmp_path) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(InputError, match="it is not as it was before"):
            session.undo(action)
        num_events = len(reader.history())
        with pytest.raises(InputError, match="proposed again, and is known to be wrong"):
            session.undo(action)
        assert len(reader.history()) == num_events
        session.undo(action)
    assert reader.records() == {"one": {"title": "first"}}


def test_a_proposal_about_anything_else_is_not_sent(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    reader.put("two", title="precious")
    before_all = {"bucket": "$request.path.bucket", "collection": "notes"}
    model = Model(
        {"operation": "delete_record", "arguments": {**before_all, "id": "two"}},
        {"operation": "delete_collection", "arguments": before_all},
        {"operation": "get_anything"},
        {"nothing": 1},
        {"operation": "delete_record", "arguments": {"bucket": "$response.body#/nothing"}},
    )
    with opened_with(model, kinto, tmp_path) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        for rule in ("is about .*two, not about it", "which would go with it", "there is none", "no operation", "noth"):
            with pytest.raises(InputError, match=rule):
                session.undo(action)
        assert session.journal.standing(action).state is S.EXECUTED
    assert reader.records() == {"one": {"title": "ours"}, "two": {"title": "precious"}}


def test_a_value_of_a_model_at_any_depth_is_not_brought_into_other_actions(tmp_path: Path):
    planted = {"id": "$request.path.id", "body": {"v": "$before.body#/v", "at": "planted"}}  # `at` is not compared
    model = Model({"operation": "put", "arguments": planted}, {"operation": "put", "arguments": planted})
    catalogue = copy.deepcopy(CATALOGUE)
    catalogue["operations"]["put"] |= {"undo": [], "spend": 0.0}
    with OddService(items={"x": {"v": 1}, "y": {"v": 2}}) as service:
        settings = {"catalogue": written(tmp_path, catalogue), "secret": "", "hold_s": 0.0}
        with opened(tmp_path, {"odd": connection(service.port, **settings)}, propose_inverse=model) as session:
            session.undo(done(session, "put", "odd", id="x", body={"v": 7}))
            assert session.plan(asked("put", "odd", id="y", body={"v": 8})).guarantee is Guarantee.NONE
            session.undo(done(session, "put", "odd", id="y", body={"v": 8}))
            assert len(model.asked) == 2


@pytest.mark.parametrize(
    ("template", "is_so"),
    [
        ({"id": "{$request.path.id}", "body": ["$before.body#/v"]}, True),
        ({"body": {"of": "$before.body", "without": ["/at"]}}, True),
        ({"id": "x-{$request.path.id}"}, False),
        ({"id": "$request.path.id", "n": 1}, False),
        ({"id": "$new.uuid"}, False),
        ({"body": {}}, False),
        ({}, False),
    ],
)
def test_only_what_comes_from_the_action_alone_is_general(template: Any, is_so: bool):
    assert is_general(normal(template)) is is_so


def test_a_wrong_inverse_is_known_in_another_spelling(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    wrong = {"operation": "patch_record", "arguments": {**OF_PATH, "body": {"data": {"title": "wrong"}}}}
    other = {**wrong, "arguments": {**wrong["arguments"], "id": "{$request.path.id}"}}
    with opened_with(Model(wrong, other), kinto, tmp_path) as session:
        action = done(session, "patch_record", **change(reader, title="ours"))
        with pytest.raises(NotUndone):
            session.undo(action)
        with pytest.raises(InputError, match="proposed again, and is known to be wrong"):
            session.undo(action)


def test_a_pair_that_was_found_wrong_puts_nothing_back_either(kinto: int, reader: Reader, tmp_path: Path):
    with opened(tmp_path, {"kinto": connection(kinto)}) as session:
        action = done(session, "put_record", **change(reader, title="ours"))
        session.undo(action)
        manager = manager_of(session)
        for pair, (_, _, inverse) in manager.inverses().items():
            if inverse.undo.operation == "put_record":
                manager.pairs.judge(pair, "it lost my title", is_good=False)
        part = part_from(session.journal.standing(action).body["parts"][0])
        assert part.operation == "delete_record"
        with pytest.raises(InputError, match="nothing is known that takes delete_record back"):
            manager._inverses.restoring(manager._services["kinto"], part, part.after)


def test_an_inverse_with_values_of_its_own_action_is_not_used_for_another(kinto: int, reader: Reader, tmp_path: Path):
    reader.put("one", title="first")
    literal = {**RIGHT, "arguments": {**RIGHT["arguments"], "body": {"data": {"title": "first"}}}}
    model = Model(literal, RIGHT)
    with opened_with(model, kinto, tmp_path) as session:
        session.undo(done(session, "patch_record", **change(reader, title="ours")))
        reader.put("one", title="second")
        session.undo(done(session, "patch_record", **change(reader, title="ours")))
        assert len(model.asked) == 2
    assert reader.records() == {"one": {"title": "second"}}
