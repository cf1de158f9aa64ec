"""Sessions at one service at the same time, as of several users, lose and double nothing of each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from autoclave.core import InputError
from autoclave.runtime.interface import Choice
from autoclave.runtime.states import ActionState
from tests.runtime.rest.acting import Reader, asked, connection, done, opened

_SESSIONS, _TURNS = 6, 4


def at_once(kinto: int, folder: Path, act: Callable[..., int]) -> list[int]:
    """What `act` gives for each of several sessions, which begin together."""
    start = threading.Barrier(_SESSIONS)

    def one(number: int) -> int:
        (own := folder / f"{number}").mkdir()
        with opened(own, {"kinto": connection(kinto)}) as session:
            start.wait(30)
            found = act(session, number)
            for each in session.journal.standings((ActionState.IN_DOUBT,)):  # refused, and as others made it meanwhile
                session.resolve(each.action, ActionState.FAILED, "another session was faster")
            assert session.audit() == []
            assert session.journal.standings((ActionState.IN_DOUBT, ActionState.UNDO_IN_DOUBT)) == []
            return found

    with ThreadPoolExecutor(_SESSIONS) as pool:
        return list(pool.map(one, range(_SESSIONS)))


def test_what_sessions_make_and_take_back_is_theirs_alone(kinto: int, reader: Reader, tmp_path: Path):
    place = {"bucket": reader.bucket, "collection": "notes"}

    def act(session, number: int) -> int:
        actions = [
            done(session, "create_record", **place, body={"data": {"by": number, "n": n}}) for n in range(_TURNS)
        ]
        for action in actions[::2]:
            session.undo(action)
        return len(actions[1::2])

    left = sum(at_once(kinto, tmp_path, act))
    assert sorted((data["by"], data["n"]) for data in reader.records().values()) == [
        (by, n) for by in range(_SESSIONS) for n in range(1, _TURNS, 2)
    ]
    assert left == len(reader.records())


def test_of_changes_of_one_thing_at_the_same_time_none_is_lost(kinto: int, reader: Reader, tmp_path: Path):
    place = {"bucket": reader.bucket, "collection": "notes", "id": "counter"}
    reader.put("counter", n=0)

    def act(session, number: int) -> int:
        num_refused = 0
        for _ in range(_TURNS):
            while True:  # until nobody is faster
                now = reader.records()["counter"]["n"]
                proposal = session.propose(asked("put_record", **place, body={"data": {"n": now + 1}}))
                if reader.records()["counter"]["n"] != now:
                    continue
                try:
                    session.run(proposal.action, proposal.plan.digest)
                    break
                except InputError:
                    num_refused += 1
        return num_refused

    at_once(kinto, tmp_path, act)
    assert reader.records() == {"counter": {"n": _SESSIONS * _TURNS}}


def test_an_undo_does_not_take_back_what_other_sessions_did_since(kinto: int, reader: Reader, tmp_path: Path):
    place = {"bucket": reader.bucket, "collection": "notes", "id": "one"}
    reader.put("one", n=0)
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    services = {"kinto": connection(kinto)}
    with opened(tmp_path / "ours", services) as ours, opened(tmp_path / "theirs", services) as theirs:
        first = done(ours, "put_record", **place, body={"data": {"n": 1}})
        second = done(theirs, "put_record", **place, body={"data": {"n": 2}})
        assert ours.conflicts_of(first) == [f"services/kinto{reader.place}/records/one"]
        theirs.undo(second)
        assert ours.conflicts_of(first) == []
        ours.undo(first, on_conflict=Choice.REFUSE)
    assert reader.records() == {"one": {"n": 0}}
