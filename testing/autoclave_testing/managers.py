"""Tests that every manager of actions must pass. Needs pytest; nothing imports it.

Subclass `ManagerConformance` and override the fixture `resource`:

    class TestMine(ManagerConformance):
        @pytest.fixture
        def resource(self, tmp_path):
            return Resource(open_manager, operations, content, change)
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import InputError
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.interface import Choice, Manager, NotPermitted
from autoclave.runtime.journal import Journal
from autoclave.runtime.permissions import Permissions
from autoclave.runtime.policy.grants import Grant
from autoclave.runtime.session import Session
from autoclave.runtime.states import ActionState

_S = ActionState


@dataclass(frozen=True)
class Resource:
    """The resource of a manager under test.

    Attributes:
        open_manager: opens the manager with the folder for its state.
        operations: as JSON data; each changes the resource, also after those before it.
        content: all that the resource holds.
        change: has another program change what the first operation changes, to something else.
    """

    open_manager: Callable[[Path], Manager]
    operations: Sequence[Mapping[str, Any]]
    content: Callable[[], Any]
    change: Callable[[], object]


class _Killed(BaseException):
    """The process dies here."""


class ManagerConformance:
    """Subclasses override the fixture `resource`."""

    @pytest.fixture
    def resource(self) -> Resource:
        raise NotImplementedError

    @pytest.fixture
    def state(self, tmp_path: Path) -> Path:
        return tmp_path / "conformance"

    def test_planning_changes_nothing(self, resource: Resource, state: Path):
        before = resource.content()
        with open_session(resource, state) as session:
            for given in resource.operations[:1]:
                assert session.plan(given).changes
                proposal = session.propose(given)
                assert all(isinstance(line, str) for line in session.difference(proposal.action))
        assert resource.content() == before

    def test_nothing_is_permitted_without_a_grant(self, resource: Resource, state: Path):
        before = resource.content()
        with open_session(resource, state, permitted=False) as session, pytest.raises(NotPermitted):
            session.propose(resource.operations[0])
        assert resource.content() == before

    def test_actions_are_undone_exactly_and_redone(self, resource: Resource, state: Path):
        before = resource.content()
        with open_session(resource, state) as session:
            session.savepoint("start")
            actions = [done(session, given) for given in resource.operations]
            after = resource.content()
            assert after != before
            session.undo_to("start")
            assert resource.content() == before
            for action in actions:
                session.redo(action)
            assert resource.content() == after
            session.undo_to("start")
            assert resource.content() == before
            assert session.audit() == []

    def test_a_plan_that_is_out_of_date_is_not_executed(self, resource: Resource, state: Path):
        with open_session(resource, state) as session:
            proposal = session.propose(resource.operations[0])
            resource.change()
            found = resource.content()
            with pytest.raises(InputError):
                session.run(proposal.action, proposal.plan.digest)
        assert resource.content() == found

    def test_changes_of_others_are_kept_unless_forced(self, resource: Resource, state: Path):
        with open_session(resource, state) as session:
            action = done(session, resource.operations[0])
            resource.change()
            found = resource.content()
            assert session.conflicts_of(action)
            with pytest.raises(InputError):
                session.undo(action)
            assert resource.content() == found
            session.undo(action, on_conflict=Choice.FORCE)
            session.redo(action)
            assert resource.content() == found

    @pytest.mark.parametrize("verb", ["execute", "undo", "redo"])
    @pytest.mark.parametrize("is_done", [False, True])
    def test_after_a_crash_an_action_is_done_or_not(
        self, resource: Resource, state: Path, monkeypatch: pytest.MonkeyPatch, verb: str, is_done: bool
    ):
        contents = [resource.content()]
        with open_session(resource, state) as session:
            action = done(session, resource.operations[0]) if verb != "execute" else ""
            contents.append(resource.content())
            if verb == "redo":
                session.undo(action)
            manager = session.actions.all_managers[0]
            own = getattr(manager, verb)

            def die(*given: Any, **more: Any) -> Any:
                if is_done:
                    own(*given, **more)
                raise _Killed

            monkeypatch.setattr(manager, verb, die)
            with contextlib.suppress(_Killed):
                done(session, resource.operations[0]) if verb == "execute" else getattr(session, verb)(action)
            ended = resource.content()
        with open_session(resource, state) as session:
            (standing,) = [each for each in session.journal.standings() if not action or each.action == action]
            match standing.state:
                case _S.FAILED | _S.UNDONE:
                    assert resource.content() == contents[0]
                case _S.EXECUTED | _S.REDONE:
                    assert resource.content() == (contents[1] if action else ended) != contents[0]
                case state_:
                    pytest.fail(f"is {state_}")


def done(session: Session, given: Mapping[str, Any]) -> str:
    """Propose and execute an operation; return the id of its action."""
    proposal = session.propose(given)
    session.run(proposal.action, proposal.plan.digest)
    return proposal.action


def open_session(resource: Resource, state: Path, *, permitted: bool = True) -> Session:
    """Open a session on the resource alone, in which everything is permitted."""
    state.mkdir(exist_ok=True)
    opened = contextlib.ExitStack()
    journal = opened.enter_context(Journal(state / "journal.sqlite", state / "checkpoints"))
    permissions, manager = Permissions(journal, "main", budget=1e9), resource.open_manager(state / "manager")
    opened.callback(manager.close)
    if permitted and not permissions.grants():
        permissions.grant(Grant(resources=("**",), verbs=("*",), minimum_guarantee=Guarantee.NONE))
    return Session(journal, [manager], permissions, opened)
