"""A compensating request is believed when the service shows what it showed before; one that is wrong is wrong once."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import NotPermitted, NotUndone
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.rest.catalogue import Undo
from autoclave.runtime.rest.compensations import ProofStatus
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, asked, connection, done, manager_of, opened, plain, written
from tests.runtime.rest.odd_service import CATALOGUE, OddService, opened_on

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
    """Kinto's catalogue with other compensating requests of one operation."""
    catalogue = plain("kinto")
    catalogue["operations"][operation]["undo"] = list(undo)
    return written(folder, catalogue)


def change(reader: Reader, **data: Any) -> dict[str, Any]:
    return {**reader.where, "id": "one", "body": {"data": data}}


def statuses(session: Session) -> list[ProofStatus]:
    return [each.status for each in manager_of(session).compensations.all().values()]


@dataclass(frozen=True)
class Trial:
    """A record `one`, and sessions that change it and have certain compensating requests for that."""

    reader: Reader
    folder: Path

    def opened(self, *undo: Mapping[str, Any], model: Any = None, grants: Any = None, **settings: Any) -> Session:
        catalogue = with_undo(self.folder, "patch_record", *undo)
        services = {"kinto": connection(self.reader.port, catalogue=catalogue, queue_s=0.0, **settings)}
        return opened(self.folder, services, propose_compensation=model, grants=grants)

    def asked(self, title: str = "ours") -> dict[str, Any]:
        return asked("patch_record", **change(self.reader, title=title))

    def done(self, session: Session, title: str = "ours") -> str:
        return done(session, "patch_record", **change(self.reader, title=title))

    def has(self, title: str) -> bool:
        return self.reader.records()["one"] == {"title": title}


@pytest.fixture
def trial(reader: Reader, tmp_path: Path) -> Trial:
    reader.put("one", title="first")
    return Trial(reader, tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "patch_record", "arguments": {**OF_PATH, "body": {"data": {"title": "nonsense"}}}},
        {"operation": "delete_record", "arguments": OF_PATH},
    ],
    ids=["other content", "deleted"],
)
def test_a_wrong_compensation_is_found_out_taken_back_and_never_used_again(trial: Trial, wrong: dict[str, Any]):
    with trial.opened(wrong) as session:
        action = trial.done(session)
        with pytest.raises(NotUndone, match="it is not as it was before; this compensating request is not used again"):
            session.undo(action)
        assert trial.has("ours")  # what the wrong one did was taken back
        assert session.journal.standing(action).state is S.UNDO_FAILED
        assert ProofStatus.QUARANTINED in statuses(session)
        num_events = len(trial.reader.history())
        with pytest.raises(InputError, match=r"is quarantined: .*not as it was before"):
            session.undo(action)
        plan = session.plan(trial.asked("other"))
        assert plan.guarantee is Guarantee.NONE
        assert "cannot be taken back" in plan.changes[0]
        assert len(trial.reader.history()) == num_events
    with trial.opened(wrong) as session:  # also by those that come later
        assert session.plan(trial.asked("x")).guarantee is Guarantee.NONE


def test_a_wrong_pinned_compensation_is_undone_and_not_quarantined(trial: Trial):
    wrong = {"operation": "put_record", "arguments": {**OF_PATH, "body": {"data": {}}}, "status": "pinned"}
    with trial.opened(wrong) as session:
        action = trial.done(session)
        with pytest.raises(NotUndone, match="it is not as it was before"):
            session.undo(action)
        assert trial.has("ours")
        assert ProofStatus.QUARANTINED not in statuses(session)
        plan = session.plan(trial.asked("other"))
        assert "put_record, equivalent (pinned)" in plan.changes[0]  # a developer answers for it: the next call goes on


def test_after_a_wrong_compensation_the_next_one_in_the_catalogue_is_used(trial: Trial):
    with trial.opened({"operation": "delete_record", "arguments": OF_PATH}, RIGHT) as session:
        action = trial.done(session)
        with pytest.raises(NotUndone):
            session.undo(action)
        session.undo(action)
        assert trial.has("first")
        assert sorted(statuses(session)) == [ProofStatus.PROVEN, ProofStatus.QUARANTINED]


def test_a_compensation_is_proven_each_time_that_it_was_seen_to_work(trial: Trial):
    with trial.opened(RIGHT) as session:
        plan = session.plan(trial.asked())
        assert plan.guarantee is Guarantee.NONE
        assert plan.changes[0].endswith("put_record, equivalent (unproven; counts as none until an undo proves it)")
        for number in range(1, 3):
            session.undo(trial.done(session))
            plan = session.plan(trial.asked())
            assert plan.guarantee is Guarantee.EQUIVALENT
            assert f"equivalent (proven {number} times, last on {datetime.now(UTC).date()})" in plan.changes[0]


def test_a_proof_expires(trial: Trial, monkeypatch: pytest.MonkeyPatch):
    with trial.opened(RIGHT, proof_days=30.0) as session:
        session.undo(trial.done(session))
        proven_at = time.time()
        monkeypatch.setattr(time, "time", lambda: proven_at + 29 * 86_400)
        assert session.plan(trial.asked()).guarantee is Guarantee.EQUIVALENT
        monkeypatch.setattr(time, "time", lambda: proven_at + 31 * 86_400)
        plan = session.plan(trial.asked())
        assert plan.guarantee is Guarantee.NONE
        assert "expired; counts as none until an undo proves it" in plan.changes[0]
        session.undo(trial.done(session))  # which proves it again
        assert session.plan(trial.asked()).guarantee is Guarantee.EQUIVALENT


def test_a_grant_for_equivalent_undos_does_not_cover_an_unproven_one(trial: Trial):
    grants = (Grant(resources=("services/**",), verbs=("*",), minimum_guarantee=Guarantee.EQUIVALENT),)
    with trial.opened(RIGHT, grants=grants) as session, pytest.raises(NotPermitted):
        session.propose(trial.asked())
    assert trial.has("first")


def test_a_broken_compensation_stays_broken_until_it_is_pinned(session: Session):
    compensations = manager_of(session).compensations
    for recorded, status in (
        (ProofStatus.PROVEN, ProofStatus.PROVEN),
        (ProofStatus.QUARANTINED, ProofStatus.QUARANTINED),
        (ProofStatus.PROVEN, ProofStatus.QUARANTINED),
        (ProofStatus.PINNED, ProofStatus.PINNED),
    ):
        compensations.record("kinto/x/1", recorded, "I looked")
        assert compensations.learnt("kinto/x/1").status is status


def test_what_is_learnt_counts_for_the_operation_as_it_is_declared(session: Session):
    manager = manager_of(session)
    spec, undo = manager._services["kinto"].spec("patch_record"), Undo.model_validate(RIGHT)
    others = (spec.model_copy(update={"path": "/v2"}), undo), (spec, undo.model_copy(update={"operation": "x"}))
    names = {manager.compensations.name("kinto", "patch_record", *each) for each in ((spec, undo), *others)}
    assert len(names) == 3


# --- Proposed by a model ---------------------------------------------------------------------------------------------


class Model:
    """Proposes what it was given, and keeps what it was asked."""

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[Any]()

    def __call__(self, request: Any, response: Any, specification: Any) -> Mapping[str, Any]:
        self.asked.append((request, response, specification))
        return self.answers.pop(0)


def test_where_the_catalogue_has_none_a_model_proposes_and_is_asked_once(trial: Trial):
    with trial.opened(model=(model := Model(RIGHT))) as session:
        plan = session.plan(trial.asked())
        assert plan.guarantee is Guarantee.NONE
        assert "a model has to propose it, unproven" in plan.changes[0]
        session.undo(trial.done(session))
        assert trial.has("first")
        (request, response, operations) = model.asked[0]
        assert request["before"]["data"]["title"] == "first"
        assert response["body"]["data"]["title"] == "ours"
        assert "delete_record" in operations
        assert "get_record" not in operations
        session.undo(trial.done(session, "more"))  # proven by now: no one is asked
        assert trial.has("first")
        assert len(model.asked) == 1


def test_what_a_model_proposes_wrongly_is_tried_once_and_not_again(trial: Trial):
    wrong = {"operation": "patch_record", "arguments": {**OF_PATH, "body": {"data": {"title": "$request.path.id"}}}}
    spelled = {**wrong, "arguments": {**wrong["arguments"], "id": "{$request.path.id}"}}  # the same, in other words
    with trial.opened(model=Model(wrong, spelled, RIGHT)) as session:
        action = trial.done(session)
        with pytest.raises(InputError, match="it is not as it was before"):
            session.undo(action)
        num_events = len(trial.reader.history())
        with pytest.raises(InputError, match="proposed again, and is known to be wrong"):
            session.undo(action)
        assert len(trial.reader.history()) == num_events
        session.undo(action)
    assert trial.has("first")


def test_a_proposal_about_anything_else_is_not_sent(trial: Trial):
    trial.reader.put("two", title="precious")
    before_all = {"bucket": "$request.path.bucket", "collection": "notes"}
    proposals = [
        ({"operation": "delete_record", "arguments": {**before_all, "id": "two"}}, "targets .*two, not this"),
        ({"operation": "delete_collection", "arguments": before_all}, "which would go with it"),
        ({"operation": "get_anything"}, "there is none"),
        ({"nothing": 1}, "request: operation: "),
        ({"operation": "delete_record", "arguments": {"bucket": "$response.body#/nothing"}}, "noth"),
    ]
    with trial.opened(model=Model(*(proposal for proposal, _ in proposals))) as session:
        action = trial.done(session)
        for _, rule in proposals:
            with pytest.raises(InputError, match=rule):
                session.undo(action)
        assert session.journal.standing(action).state is S.EXECUTED
    assert trial.reader.records() == {"one": {"title": "ours"}, "two": {"title": "precious"}}


def test_a_value_of_a_model_at_any_depth_is_not_brought_into_other_actions(tmp_path: Path):
    planted = {"id": "$request.path.id", "body": {"v": "$before.body#/v", "at": "planted"}}  # `at` is not compared
    model = Model({"operation": "put", "arguments": planted}, {"operation": "put", "arguments": planted})
    catalogue = copy.deepcopy(CATALOGUE)
    catalogue["operations"]["put"] |= {"undo": [], "spend": 0.0}
    with (
        OddService(items={"x": {"v": 1}, "y": {"v": 2}}) as service,
        opened_on(service, tmp_path, catalogue, propose_compensation=model) as session,
    ):
        session.undo(done(session, "put", "odd", id="x", body={"v": 7}))
        assert session.plan(asked("put", "odd", id="y", body={"v": 8})).guarantee is Guarantee.NONE
        session.undo(done(session, "put", "odd", id="y", body={"v": 8}))
        assert len(model.asked) == 2
