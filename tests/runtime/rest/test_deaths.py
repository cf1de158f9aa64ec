"""A process that is killed at any event leaves a service as before or as after, and the next one says which it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.runtime.journal import Journal
from autoclave.runtime.rest.notes import Notes
from autoclave.runtime.rest.wire import Wire
from autoclave.runtime.states import ActionState
from tests.runtime.deaths import dies_within
from tests.runtime.rest.acting import Reader, connection, done, opened, without_keys
from tests.runtime.rest.test_in_doubt import CHANGES

S = ActionState


def dies_at(deadly: int, act: Callable[[], None]) -> bool:
    """Whether a child that is killed at its so-manieth event came so far: before or after what is written or sent."""

    def work(dying: Callable[[Any], Any]) -> None:
        for owner, name in ((Journal, "_add"), (Journal, "seal"), (Notes, "_write"), (Wire, "_exchange")):
            setattr(owner, name, dying(getattr(owner, name)))
        act()

    return dies_within(deadly, work)


@pytest.mark.parametrize(
    ("change", "catalogue"),
    [
        (CHANGES[0], "kinto"),
        (CHANGES[0], "without keys"),
        (CHANGES[2], "kinto"),
        pytest.param(CHANGES[3], "kinto", marks=pytest.mark.soak),
    ],
    ids=["create", "create without keys", "put", "delete"],
)
def test_killed_at_every_event_of_an_action_it_is_done_once_or_not_at_all(
    kinto: int, reader: Reader, tmp_path: Path, change: dict[str, Any], catalogue: str
):
    path = catalogue if catalogue == "kinto" else without_keys(tmp_path)
    services = {"kinto": connection(kinto, catalogue=path, patience_s=0.1)}

    def act() -> None:
        with opened(tmp_path, services) as session:
            done(session, **reader.where, **change)

    reader.put("one", title="first")
    before, num_done = reader.records(), 0
    for deadly in itertools.count(1):
        was_killed = dies_at(deadly, act)
        with opened(tmp_path, services) as session:
            now, standings = reader.records(), session.journal.standings()
            for each in standings:
                if each.state is S.IN_DOUBT:  # done, and nothing proves by whom
                    assert now != before, deadly
                    assert catalogue != "kinto" or change["operation"] == "delete_record"
                    session.resolve(each.action, S.EXECUTED, "by the service's own account")
            standings = session.journal.standings()
            assert {each.state for each in standings} <= {S.PROPOSED, S.APPROVED, S.FAILED, S.UNDONE, S.EXECUTED}, (
                deadly
            )
            stands = [each for each in standings if each.state is S.EXECUTED]
            assert len(stands) == (now != before), (deadly, now)
            if stands:
                num_done += 1
                session.undo(stands[0].action)
            assert reader.records() == before, deadly
            assert session.audit() == []
        if not was_killed:
            break
    assert deadly > 15
    assert 3 < num_done < deadly
    made = [event for event, _ in reader.history() if event == "create"]
    assert (
        len(made)
        == {"create_record": 1 + num_done, "put_record": 1, "delete_record": 1 + num_done}[change["operation"]]
    )


@pytest.mark.parametrize(
    "change",
    [CHANGES[0], *(pytest.param(each, marks=pytest.mark.soak) for each in CHANGES[2:])],
    ids=["create", "put", "delete"],
)
def test_killed_at_every_event_of_undo_and_redo_these_come_to_their_end(
    kinto: int, reader: Reader, tmp_path: Path, change: dict[str, Any]
):
    services = {"kinto": connection(kinto, patience_s=0.1)}
    reader.put("one", title="first")
    before = reader.records()
    with opened(tmp_path, services) as session:
        action = done(session, **reader.where, **change)
    after = reader.records()
    turns = (("undo", before, after, (S.UNDONE,)), ("redo", after, before, (S.REDONE,)))
    for what, wanted, other, ends in turns:

        def turn(what: str = what) -> None:
            with opened(tmp_path, services) as session:
                getattr(session, what)(action)

        for deadly in itertools.count(1):
            was_killed = dies_at(deadly, turn)
            with opened(tmp_path, services) as session:
                state = session.journal.standing(action).state
                if state in ends:
                    assert reader.records() == wanted, (what, deadly)
                    if was_killed:  # and once more from the beginning
                        getattr(session, "redo" if what == "undo" else "undo")(action)
                else:
                    assert reader.records() == other, (what, deadly)
            if not was_killed:
                break
        assert deadly > 15
