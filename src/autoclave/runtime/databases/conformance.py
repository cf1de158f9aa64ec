"""What every engine of databases must do, as tests that any engine can run. Needs pytest; nothing imports it.

Subclass `EngineConformance` and override the fixture `scratch`, which gives each test an empty database:

    class TestMine(EngineConformance):
        @pytest.fixture
        def scratch(self, server):
            return ScratchDatabase(settings, others=lambda statement: rows as tuples, schema="public")

The statements are plain SQL on tables that `PLAIN_TABLES` makes; an engine that speaks another language gives its own
`words`. Tests on what an engine cannot do are skipped by overriding `lacks`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.databases.effects import Effect
from autoclave.runtime.databases.engine import Engine, Rejected, RowConflict, open_engine
from autoclave.runtime.databases.kept import effect_of
from autoclave.runtime.databases.manager import DatabaseManager
from autoclave.runtime.databases.operations import Sql
from autoclave.runtime.databases.settings import DatabaseConnection, Mode
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice
from autoclave.runtime.journal import Journal
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState

SECRET = "canary-31b7"
"""Stands in a row; must be in nothing that a model sees."""
PLAIN_TABLES = (
    "CREATE TABLE parent (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL UNIQUE, amount INTEGER)",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER, "
    "FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
    "CREATE TABLE loose (word VARCHAR(40), amount INTEGER)",
    f"INSERT INTO parent VALUES (1, 'one', 10), (2, 'two', 20), (3, '{SECRET}', NULL)",
    "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
    "INSERT INTO loose VALUES ('x', 1), ('x', 1), ('y', NULL)",
)
PLAIN_WORDS: Mapping[str, tuple[str, ...]] = {
    "insert": ("INSERT INTO parent VALUES (9, 'nine', 9)",),
    "update": ("UPDATE parent SET amount = amount + 1 WHERE id < 3",),
    "delete": ("DELETE FROM loose WHERE word = 'x'",),
    "cascade": ("DELETE FROM parent WHERE id = 1",),
    "several": ("INSERT INTO parent VALUES (9, 'nine', 9)", "INSERT INTO child VALUES (9, 9)", "DELETE FROM loose"),
    "fails": ("UPDATE parent SET amount = 0", "INSERT INTO parent VALUES (1, 'again', 0)"),
    "nothing": ("DELETE FROM parent WHERE id = 1000",),
    "twice": ("UPDATE parent SET name = 'two' WHERE id = 3",),
    "update 2": ("UPDATE parent SET amount = 5 WHERE id = 2",),
    "update 3": ("UPDATE parent SET amount = 5 WHERE id = 3",),
    "theirs": ("UPDATE parent SET amount = 77 WHERE id = 2",),
    "depends": ("INSERT INTO child VALUES (99, 9)",),
    "many": ("INSERT INTO loose SELECT a.word, b.amount FROM loose a, loose b, loose c",),
    "two in one": ("DELETE FROM loose; DELETE FROM child",),
    "looks": ("SELECT * FROM parent",),
    "ends": ("COMMIT",),
}
PLAIN_CONTENT: Mapping[str, str] = {
    "parent": "SELECT id, name, amount FROM parent ORDER BY id",
    "child": "SELECT id, parent FROM child ORDER BY id",
    "loose": "SELECT word, amount FROM loose ORDER BY word, amount",
}


@dataclass(frozen=True)
class ScratchDatabase:
    """An empty database. `others` does a statement as somebody else, and gives the rows."""

    settings: DatabaseConnection
    others: Callable[[str], Any]
    schema: str
    password: str = ""
    tables: tuple[str, ...] = PLAIN_TABLES
    words: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PLAIN_WORDS)
    content_by: Mapping[str, str] = field(default_factory=lambda: PLAIN_CONTENT)
    name: str = "here"

    def content(self) -> dict[str, list[Any]]:
        """All rows."""
        return {name: [tuple(row) for row in self.others(query)] for name, query in self.content_by.items()}

    def sql(self, word: str, **more: Any) -> Sql:
        return Sql(database=self.name, statements=self.words[word], **more)


class EngineConformance:
    """Tests of an engine, alone and under a session."""

    lacks: frozenset[str] = frozenset()
    """What it cannot do: `cascade`, `rollback`, `limits`, `transaction`."""

    @pytest.fixture
    def scratch(self) -> ScratchDatabase:
        raise NotImplementedError("override this fixture")

    @pytest.fixture
    def filled(self, scratch: ScratchDatabase) -> ScratchDatabase:
        for statement in scratch.tables:
            scratch.others(statement)
        return scratch

    @pytest.fixture
    def engine(self, filled: ScratchDatabase) -> Iterator[Engine]:
        with contextlib.closing(open_engine(filled.name, filled.settings, filled.password)) as engine:
            yield engine

    @pytest.fixture
    def session(self, filled: ScratchDatabase, tmp_path: Path) -> Iterator[Session]:
        with open_session(filled, tmp_path / "state") as session:
            yield session

    def require(self, ability: str) -> None:
        if ability in self.lacks:
            pytest.skip(f"the engine lacks {ability}")

    # --- The engine alone -------------------------------------------------------------------------------------------

    def test_it_tells_tables_and_no_rows(self, filled: ScratchDatabase, engine: Engine):
        told = "\n".join(engine.schema().told())
        assert all(name in told for name in filled.content_by)
        assert SECRET not in told

    @pytest.mark.parametrize("word", ["insert", "update", "delete", "cascade", "several"])
    def test_what_a_rehearsal_tells_is_done_and_its_inverse_takes_it_back(
        self, filled: ScratchDatabase, engine: Engine, word: str
    ):
        if word == "cascade":
            self.require("cascade")
        before = filled.content()
        rehearsed = engine.rehearse(filled.sql(word), Mode.IMAGES)
        assert filled.content() == before
        kept: list[tuple[Effect, Any]] = []
        engine.perform(filled.sql(word), lambda effect, mark: kept.append((effect, mark)))
        ((effect, mark),) = kept
        after = filled.content()
        assert after != before
        assert effect.digest() == rehearsed.digest()
        assert effect_of(effect.to_bytes()).digest() == effect.digest()
        assert engine.was_committed(mark, effect)
        assert engine.conflicting(effect.inverse()) == {}
        engine.write(effect.inverse(), lambda *_: None)
        assert filled.content() == before
        engine.write(effect, lambda *_: None)
        assert filled.content() == after

    def test_what_others_changed_since_a_rehearsal_is_in_the_effect(self, filled: ScratchDatabase, engine: Engine):
        rehearsed = engine.rehearse(filled.sql("update"), Mode.IMAGES)
        filled.others(*filled.words["theirs"])
        before = filled.content()
        kept: list[Effect] = []
        engine.perform(filled.sql("update"), lambda effect, _: kept.append(effect))
        (effect,) = kept
        assert effect.digest() != rehearsed.digest()
        engine.write(effect.inverse(), lambda *_: None)
        assert filled.content() == before

    def test_what_keeping_raises_leaves_all_as_it_was(self, filled: ScratchDatabase, engine: Engine):
        self.require("rollback")
        before = filled.content()
        seen: list[tuple[Effect, Any]] = []

        def refuse(effect: Effect, mark: Any) -> None:
            seen.append((effect, mark))
            raise InputError("not this time")

        with pytest.raises(InputError, match="not this time"):
            engine.perform(filled.sql("several"), refuse)
        assert filled.content() == before
        ((effect, mark),) = seen
        assert not engine.was_committed(mark, effect)

    def test_rows_that_others_changed_are_told_and_not_written_over(self, filled: ScratchDatabase, engine: Engine):
        kept: list[Effect] = []
        engine.perform(filled.sql("update"), lambda effect, _: kept.append(effect))
        filled.others(*filled.words["theirs"])
        there = filled.content()
        conflicting = engine.conflicting(kept[0].inverse())
        assert [table for table, _ in conflicting] == [f"{filled.schema}/parent"]
        with pytest.raises(RowConflict) as caught:
            engine.write(kept[0].inverse(), lambda *_: None)
        assert len(caught.value.names) == 1
        assert filled.content() == there

    def test_rows_of_others_are_not_lost_by_what_is_written_back(self, filled: ScratchDatabase, engine: Engine):
        self.require("cascade")
        kept: list[Effect] = []
        engine.perform(filled.sql("insert"), lambda effect, _: kept.append(effect))
        filled.others(*filled.words["depends"])
        there = filled.content()
        with pytest.raises((Rejected, RowConflict)):
            engine.write(kept[0].inverse(), lambda *_: None)
        assert filled.content() == there

    @pytest.mark.parametrize("word", ["two in one", "looks", "ends"])
    def test_what_is_no_single_action_is_refused(self, filled: ScratchDatabase, engine: Engine, word: str):
        before = filled.content()
        if word in filled.words:
            with pytest.raises(InputError):
                engine.read(filled.sql(word), Mode.IMAGES)
        assert filled.content() == before

    def test_errors_hold_no_values(self, filled: ScratchDatabase, engine: Engine):
        with pytest.raises(InputError) as caught:
            engine.rehearse(filled.sql("twice"), Mode.IMAGES)
        assert SECRET not in f"{caught.value} {caught.value.__cause__}"
        assert "'two'" not in f"{caught.value}"

    def test_no_more_rows_than_allowed(self, filled: ScratchDatabase):
        self.require("limits")
        before = filled.content()
        settings = filled.settings.model_copy(update={"max_rows": 5})
        with (
            contextlib.closing(open_engine(filled.name, settings, filled.password)) as engine,
            pytest.raises(InputError, match="max_rows"),
        ):
            engine.rehearse(filled.sql("many"), Mode.IMAGES)
        assert filled.content() == before

    def test_two_do_not_have_one_table(self, filled: ScratchDatabase, engine: Engine):
        engine.lease([f"{filled.schema}/parent"])
        with pytest.raises(InputError, match="another session"):  # noqa: SIM117 - it may be refused when it is opened
            with contextlib.closing(open_engine(filled.name, filled.settings, filled.password)) as other:
                other.lease([f"{filled.schema}/parent"])
        engine.lease([f"{filled.schema}/parent"])

    def test_what_is_held_is_seen_when_it_is_committed(self, filled: ScratchDatabase, engine: Engine):
        self.require("transaction")
        before = filled.content()
        kept: list[tuple[Effect, Any]] = []
        for commit in (False, True):
            engine.open_transaction(
                f"action{commit}", filled.sql("update"), lambda effect, mark: kept.append((effect, mark))
            )
            _, mark = kept[-1]
            assert engine.transaction_state(f"action{commit}", mark).is_open
            assert filled.content() == before
            engine.end_transaction(f"action{commit}", commit=commit)
            engine.end_transaction(f"action{commit}", commit=commit)
            state = engine.transaction_state(f"action{commit}", mark)
            assert (state.is_open, state.is_committed) == (False, commit)
        assert filled.content() != before

    # --- Under a session --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("word", ["insert", "update", "delete", "several"])
    def test_a_session_does_it_takes_it_back_and_does_it_again(
        self, filled: ScratchDatabase, session: Session, word: str
    ):
        before = filled.content()
        action = act(session, filled, word)
        after = filled.content()
        session.undo(action)
        assert filled.content() == before
        session.redo(action)
        assert filled.content() == after
        session.undo(action)
        assert filled.content() == before
        assert session.audit() == []

    def test_all_is_done_or_nothing(self, filled: ScratchDatabase, session: Session):
        self.require("rollback")
        before = filled.content()
        with pytest.raises(InputError):
            act(session, filled, "fails")
        assert filled.content() == before

    def test_what_changes_nothing_is_no_action(self, filled: ScratchDatabase, session: Session):
        with pytest.raises(InputError, match="change nothing as it is now"):
            act(session, filled, "nothing")

    def test_what_changed_since_it_was_planned_is_not_done(self, filled: ScratchDatabase, session: Session):
        proposal = session.propose(filled.sql("update").model_dump())
        filled.others(*filled.words["theirs"])
        there = filled.content()
        with pytest.raises(InputError, match="has changed since it was planned"):
            session.run(proposal.action, proposal.plan.digest)
        assert filled.content() == there
        assert session.journal.standing(proposal.action).state is ActionState.PROPOSED

    @pytest.mark.parametrize("choice", [Choice.REFUSE, Choice.SKIP, Choice.FORCE])
    def test_a_person_says_what_becomes_of_rows_that_others_changed(
        self, filled: ScratchDatabase, session: Session, choice: Choice
    ):
        before = filled.content()
        action = act(session, filled, "update")
        filled.others(*filled.words["theirs"])
        there = filled.content()
        if choice is Choice.REFUSE:
            with pytest.raises(InputError, match="somebody else has changed"):
                session.undo(action)
            assert filled.content() == there
            return
        session.undo(action, on_conflict=choice)
        theirs = [row for row in there["parent"] if row[0] == 2]
        wanted = [row for row in before["parent"] if row[0] != 2 or choice is Choice.FORCE]
        assert filled.content()["parent"] == sorted([*wanted, *(theirs if choice is Choice.SKIP else [])])
        session.redo(action)
        assert filled.content() == there

    def test_one_of_three_is_taken_back(self, filled: ScratchDatabase, session: Session):
        first, second = act(session, filled, "update 2"), act(session, filled, "update 3")
        act(session, filled, "insert")
        whole = filled.content()["parent"]
        session.undo(first)
        assert [row for row in filled.content()["parent"] if row[0] != 2] == [row for row in whole if row[0] != 2]
        assert session.journal.standing(second).state is ActionState.EXECUTED


def act(session: Session, scratch: ScratchDatabase, word: str) -> str:
    """Do what a word says as an action; its name."""
    proposal = session.propose(scratch.sql(word).model_dump())
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


def open_session(scratch: ScratchDatabase, state: Path) -> Session:
    """A session that may do everything on a scratch database."""
    with contextlib.ExitStack() as opening:
        journal = opening.enter_context(Journal(state / "journal.sqlite", state / "checkpoints" / "signed"))
        connections = {scratch.name: scratch.settings}
        manager = DatabaseManager(connections, state / "rows", lambda _: scratch.password)
        opening.callback(manager.close)
        session = Session(journal, [manager], Permissions(journal, "main", 1e9), opening.pop_all())
    if not session.permissions.grants():
        session.permissions.grant(Grant(resources=("databases/**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return session
