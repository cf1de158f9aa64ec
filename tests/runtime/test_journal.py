"""The journal keeps what was recorded, any process writes and whenever a writer dies; and shows what was done to it."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import DataError, InputError
from autoclave.runtime.journal import Journal
from autoclave.runtime.records import Damage
from autoclave.runtime.states import FOLLOWING, ActionState

WRITER = """
import sys
from pathlib import Path
from autoclave.runtime.journal import Journal
from autoclave.runtime.states import ActionState
folder, name = Path(sys.argv[1]), sys.argv[2]
with Journal(folder / "journal.sqlite", folder / "away" / "checkpoints") as journal:
    for number in range(int(sys.argv[3])):
        journal.advance(f"{name}-{number}", ActionState.PROPOSED, {"do": number}, seal=True)
        print(number, flush=True)
"""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with open_in(tmp_path) as journal:
        yield journal


def open_in(folder: Path) -> Journal:
    return Journal(folder / "journal.sqlite", folder / "away" / "checkpoints")


def tampered(folder: Path, *statements: str) -> None:
    """As by somebody who can write to the file."""
    with sqlite3.connect(folder / "journal.sqlite", isolation_level=None) as connection:
        connection.execute("DROP TRIGGER no_update")
        connection.execute("DROP TRIGGER no_delete")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def some(journal: Journal) -> None:
    for state in (ActionState.PROPOSED, ActionState.APPROVED, ActionState.EXECUTING):
        journal.advance("a1", state, {"note": state})
    journal.advance("a2", ActionState.PROPOSED)
    journal.advance("a1", ActionState.EXECUTED, seal=True)


def test_records_come_back_as_they_were_in_order(journal: Journal, tmp_path: Path):
    some(journal)
    body = {"text": "\ud800 ü", "deep": [1, None, {"a": True}]}
    journal.append("savepoint", "before lunch", body)
    with open_in(tmp_path) as other:
        kinds = ["proposed", "approved", "executing", "proposed", "executed", "savepoint"]
        assert [(r.number, r.kind) for r in other.records()] == [*enumerate(kinds, start=1)]
        assert [r.kind for r in other.records("a2")] == ["proposed"]
        assert other.records()[-1].body == body
        for path in (tmp_path / "journal.sqlite", tmp_path / "away" / "checkpoints.key"):
            assert path.stat().st_mode & 0o777 == 0o600
        assert other.audit() == []


@pytest.mark.parametrize("state", ActionState)
def test_only_a_state_that_follows_is_recorded(journal: Journal, state: ActionState):
    path = path_to(state)
    for step in path:
        journal.advance("a", step)
    for wanted in ActionState:
        if wanted not in FOLLOWING[state]:
            with pytest.raises(InputError, match=f"is {state}, so it cannot become {wanted}"):
                journal.advance("a", wanted)
    assert len(journal.records()) == len(path)


def path_to(state: ActionState) -> list[ActionState]:
    paths = [[ActionState.PROPOSED]]
    while paths[0][-1] is not state:
        path = paths.pop(0)
        paths += [[*path, following] for following in sorted(FOLLOWING[path[-1]]) if following not in path]
    return paths[0]


def test_an_action_begins_as_proposed_and_states_are_not_appended(journal: Journal):
    with pytest.raises(InputError, match="does not exist"):
        journal.advance("a", ActionState.EXECUTING)
    with pytest.raises(InputError, match="a state of an action"):
        journal.append("executed", "a", {})


@pytest.mark.parametrize("statement", ["UPDATE records SET kind = 'x'", "DELETE FROM records"])
def test_records_are_never_changed_or_removed(journal: Journal, tmp_path: Path, statement: str):
    some(journal)
    with (
        sqlite3.connect(tmp_path / "journal.sqlite") as connection,
        pytest.raises(sqlite3.IntegrityError, match="never"),
    ):
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "damage"),
    [
        ("UPDATE records SET body = '{}' WHERE number = 3", Damage.BROKEN),
        ("UPDATE records SET body = 'not JSON' WHERE number = 3", Damage.BROKEN),
        ("DELETE FROM records", Damage.TRUNCATED),
        ("DELETE FROM actions WHERE first = 1", Damage.INDEX),
        ("UPDATE actions SET state = 'committed'", Damage.INDEX),
        ("DELETE FROM touched", Damage.INDEX),
    ],
)
def test_what_was_done_to_the_file_is_told(tmp_path: Path, statement: str, damage: Damage):
    with open_in(tmp_path) as journal:
        some(journal)
    tampered(tmp_path, statement)
    with open_in(tmp_path) as journal:
        assert damage in {finding.damage for finding in journal.audit()}


def test_a_damaged_record_is_named_where_it_is_needed(tmp_path: Path):
    with open_in(tmp_path) as journal:
        some(journal)
    tampered(tmp_path, "UPDATE records SET body = 'not JSON' WHERE number = 1")
    with open_in(tmp_path) as journal, pytest.raises(DataError, match="action a1: its record is damaged"):
        journal.standing("a1")


def test_only_who_has_the_key_signs_and_only_for_that_place(journal: Journal):
    signed = journal.append("grant", "g", {"n": 1}, is_signed=True)
    plain = journal.append("grant", "g", {"n": 1})
    again = journal.append("grant", "g", signed.body)  # as it was
    assert [journal.has_signature(each) for each in journal.records("g")] == [True, False, False]
    assert journal.has_signature(signed)
    assert not journal.has_signature(plain)
    assert not journal.has_signature(again)


def test_what_is_no_text_is_in_no_journal(journal: Journal):
    with pytest.raises(InputError, match="must be text"):
        journal.append("savepoint", "\udcff", {})
    with pytest.raises(InputError, match="is not in the journal"):
        journal.standing("\udcff")


def test_a_journal_that_was_replaced_is_told(tmp_path: Path):
    with open_in(tmp_path) as journal:
        some(journal)
    for path in tmp_path.glob("journal.sqlite*"):
        path.unlink()
    with open_in(tmp_path) as journal:
        for action in ("a1", "a2"):  # more records than before
            for state in path_to(ActionState.UNDONE):
                journal.advance(action, state)
        assert [finding.damage for finding in journal.audit()] == [Damage.REWRITTEN]


@pytest.mark.parametrize("left", [5, 3, 0])
def test_checkpoints_that_were_removed_are_told_though_the_end_of_the_journal_is_gone_as_well(
    tmp_path: Path, left: int
):
    with open_in(tmp_path) as journal:
        some(journal)
    tampered(tmp_path, f"DELETE FROM records WHERE number > {left}")
    shutil.rmtree(tmp_path / "away")
    for _ in range(2):
        with open_in(tmp_path) as journal:
            journal.advance(f"later {len(journal.records())}", ActionState.PROPOSED, seal=True)
            assert Damage.UNSIGNED in [finding.damage for finding in journal.audit()]
            assert len(journal.records_of_kinds("checkpoints_missing")) == 1


def test_processes_that_died_before_their_checkpoints_are_no_tampering(tmp_path: Path):
    done = (ActionState.PROPOSED, ActionState.APPROVED, ActionState.EXECUTING, ActionState.EXECUTED)
    for unsealed in (done, (ActionState.UNDOING, ActionState.UNDONE)):
        with open_in(tmp_path) as journal:
            journal.seal_after_death()
            for state in unsealed:
                journal.advance("a1", state)
            assert journal.audit() == []


def test_a_checkpoint_that_was_being_written_when_a_process_died_is_none(journal: Journal, tmp_path: Path):
    some(journal)
    checkpoints = tmp_path / "away" / "checkpoints"
    whole = checkpoints.read_bytes()
    checkpoints.write_bytes(whole + whole[:20])
    assert journal.audit() == []
    journal.seal()
    assert journal.audit() == []
    assert len(checkpoints.read_bytes().splitlines()) == 3  # the first is that of the empty journal
    checkpoints.write_text("no checkpoint\n")
    with pytest.raises(DataError, match="checkpoints:1"):
        journal.audit()


def test_processes_and_threads_write_one_chain(journal: Journal, tmp_path: Path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, name, "20"], stdout=subprocess.DEVNULL)
        for name in ("x", "y")
    ]
    threads = [
        threading.Thread(target=lambda name=name: [journal.append("savepoint", name, {"n": n}) for n in range(20)])
        for name in ("t", "u")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(journal.records()) == 80
    assert journal.audit() == []
    assert [r.body["n"] for r in journal.records("t")] == list(range(20))


def test_what_a_killed_writer_was_told_to_be_durable_is_there(tmp_path: Path):
    draw, told = random.Random(0), 0
    for run in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, f"r{run}", "100000"], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout
            writer.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.2))
            writer.send_signal(signal.SIGKILL)
            told += 1 + len(writer.stdout.read().splitlines())
        with open_in(tmp_path) as journal:
            assert journal.audit() == []
            assert told <= len(journal.records()) <= told + run + 1
            told = len(journal.records())


def test_a_file_that_is_no_journal_is_named(tmp_path: Path):
    (tmp_path / "journal.sqlite").write_bytes(b"no database" * 100)
    (tmp_path / "away").mkdir()
    with pytest.raises(InputError, match=r"journal\.sqlite: the journal cannot be used"):
        open_in(tmp_path)
    (tmp_path / "journal.sqlite").unlink()
    (tmp_path / "away" / "checkpoints.key").write_bytes(b"short")
    with pytest.raises(InputError, match="is not a valid key"):
        open_in(tmp_path)
