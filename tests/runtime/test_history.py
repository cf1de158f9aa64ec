"""Questions about one action are answered from an index, as if all records were read."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import InputError
from autoclave.runtime.actions import Actions
from autoclave.runtime.footprints import Footprint
from autoclave.runtime.journal import Journal, read_records
from autoclave.runtime.states import STANDING, ActionState

S = ActionState
KEYS = st.sampled_from(["files", "files/a", "files/a/b", "files/a0", "files/a\udcff", "files/c", "rows/t", "rows/t/1"])
SETS = st.frozensets(KEYS, max_size=3)
FOOTPRINTS = st.builds(Footprint, SETS, SETS)
AFTER = {  # states that an action goes through once it was executed
    "stands": (),
    "undone": (S.UNDOING, S.UNDONE),
    "redone": (S.UNDOING, S.UNDONE, S.REDOING, S.REDONE),
    "undo failed": (S.UNDOING, S.UNDO_FAILED),
    "committed": (S.COMMITTED,),
}


def opened(folder: Path) -> Journal:
    return Journal(folder / "journal.sqlite", folder / "away" / "checkpoints")


def execute(journal: Journal, action: str, footprint: Footprint, **proposed: object) -> None:
    receipt = {"reads": [*footprint.reads], "writes": [*footprint.writes]}
    journal.advance(action, S.PROPOSED, {"weight": 1.0, "guarantee": "exact", **proposed})
    for state in (S.APPROVED, S.EXECUTING):
        journal.advance(action, state)
    journal.advance(action, S.EXECUTED, receipt)


def dependents(action: str, order: list[tuple[str, Footprint]]) -> list[str]:
    """The answer by its definition, from all footprints in the order in which the actions were done."""
    names = [name for name, _ in order]
    changed, found = order[names.index(action)][1], list[str]()
    for name, footprint in order[names.index(action) + 1 :]:
        if footprint.depends_on(changed):
            changed = Footprint(writes=changed.writes | footprint.writes)
            found.append(name)
    return found[::-1]


@given(st.lists(st.tuples(FOOTPRINTS, st.sampled_from(sorted(AFTER))), min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_dependents_and_risk_are_those_of_all_records(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[Footprint, str]]
):
    with opened(tmp_path_factory.mktemp("history")) as journal:
        for number, (footprint, after) in enumerate(done):
            execute(journal, f"a{number}", footprint, weight=float(number))
            receipt = {"reads": [*footprint.reads], "writes": [*footprint.writes]}
            for state in AFTER[after]:
                journal.advance(f"a{number}", state, receipt if state is S.REDONE else {})
        actions, standing = Actions(journal, []), journal.standings(STANDING)
        order = sorted(standing, key=lambda each: each.number)
        footprints = [(each.action, done[int(each.action[1:])][0]) for each in order]
        for each in standing:
            assert actions.dependents(each) == dependents(each.action, footprints)
        for other_than in ("", *(each.action for each in standing)):
            weights = {each.action: each.proposed["weight"] for each in standing if each.action != other_than}
            heaviest = max(weights, key=lambda action: weights[action], default="")
            assert journal.risk(other_than) == sum(weights.values())
            assert journal.riskiest(other_than) == (len(weights), heaviest)


def test_risk_counts_proposals_that_cannot_be_undone(tmp_path: Path):
    with opened(tmp_path) as journal:
        journal.advance("plain", S.PROPOSED, {"weight": 2.0, "guarantee": "exact"})
        journal.advance("sent", S.PROPOSED, {"weight": 5.0, "guarantee": "none"})
        assert (journal.risk(), journal.riskiest()) == (5.0, (1, "sent"))


def test_a_question_costs_the_same_after_many_actions(tmp_path: Path):
    with opened(tmp_path) as journal:
        actions, times = Actions(journal, []), list[float]()
        for number in range(400):
            execute(journal, f"a{number}", Footprint(writes=frozenset({f"files/f{number}"})))
            if number in (20, 399):
                standing = journal.standing("a20")
                begun = time.process_time()
                for _ in range(50):
                    assert actions.dependents(standing) == []
                    journal.risk()
                times.append(time.process_time() - begun)
    assert times[1] < 5 * times[0]


def test_a_journal_of_another_version_is_refused_untouched_and_can_be_read(tmp_path: Path):
    with opened(tmp_path) as journal:
        execute(journal, "a", Footprint())
        records = journal.records()
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = (tmp_path / "journal.sqlite").read_bytes()
    with pytest.raises(InputError, match=r"journal of version 1.*act audit export"):
        opened(tmp_path)
    assert (tmp_path / "journal.sqlite").read_bytes() == before
    assert read_records(tmp_path / "journal.sqlite") == records


def test_reading_a_missing_or_damaged_journal_is_a_clear_error(tmp_path: Path):
    (tmp_path / "text").write_text("not a database" * 100)
    for name in ("missing", "text"):
        with pytest.raises(InputError, match="cannot be read"):
            read_records(tmp_path / name)
    assert not (tmp_path / "missing").exists()
