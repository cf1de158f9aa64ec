"""Python functions as actions: called once, undone by another function, in doubt where that is unknown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import autoclave.act as act
from autoclave.act import functions
from autoclave.cli.main import cli
from autoclave.core import InputError, UsageError
from autoclave.runtime.opening import open_session
from autoclave.runtime.states import ActionState

CUSTOMERS = dict[int, str]()


def _delete(arguments: dict[str, Any], result: int) -> None:
    if CUSTOMERS[result] == "locked":
        raise InputError("the customer is locked")
    if CUSTOMERS.pop(result) == "lost":
        raise TimeoutError


@act.reversible(undo=lambda _, __: set[str]())  # neither true nor JSON data
def forget(name: str) -> None:
    """Forget a name."""


@act.reversible(undo=_delete)
def create_customer(name: str, tags: list[str] | None = None) -> int:
    """Create a customer, and return the number."""
    if not name:
        raise InputError("name: must not be empty")
    CUSTOMERS[number := len(CUSTOMERS) + 1] = name
    if name == "timeout":
        raise TimeoutError("no answer")
    return number


@act.reversible()
def send_mail(to: str) -> None:
    """Send a mail."""


@act.reversible(undo=lambda arguments, result: None, touches=lambda key: [f"keys/{key}"])
def set_key(key: str) -> dict[str, Any]:
    return {"key": key}


@act.reversible(undo=lambda arguments, result: None, touches=lambda name: (CUSTOMERS[name] for _ in "a"))
def rename(name: int) -> None: ...


@act.reversible(undo=lambda arguments, result: None)
def not_json() -> object:
    return object()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[act.Session]:
    CUSTOMERS.clear()
    (tmp_path / "project").mkdir()
    offered = [create_customer, send_mail, set_key, rename, not_json, forget]
    with act.session(tmp_path / "project", functions=offered, allow=["functions/**"]) as opened:
        yield opened


def test_a_function_is_a_tool_with_the_schema_of_its_signature(session: act.Session):
    (tool,) = [each for each in session.tool_list() if each.name == "create_customer"]
    assert tool.description == "Create a customer, and return the number."
    assert tool.parameters["required"] == ["name"]
    assert tool.parameters["properties"].keys() == {"name", "tags"}
    assert (tool.is_destructive, tool.is_read_only) == (True, False)


def test_a_call_is_undone_by_its_function_and_redone(session: act.Session):
    result = session.call("create_customer", {"name": "Ann"})
    assert (result.guarantee, CUSTOMERS) == ("compensating", {1: "Ann"})
    assert str(session.changes()[0]).endswith("call create_customer(name='Ann')")
    session.undo(result.action)
    assert CUSTOMERS == {}
    session.redo(result.action)
    assert CUSTOMERS == {1: "Ann"}
    session.undo(last=1)
    assert CUSTOMERS == {}


def test_what_an_undo_returns_does_not_matter(session: act.Session):
    result = session.call("forget", {"name": "x"})
    assert session.undo(result.action) == [result.action]
    assert session.changes()[0].state is ActionState.UNDONE


def test_the_plain_function_stays_callable(session: act.Session):
    assert create_customer("Ann") == 1
    assert session.changes() == []


def test_arguments_are_checked_before_anything_is_called(session: act.Session):
    for wrong in ({}, {"name": 7}, {"name": "a", "more": 1}):
        assert "function create_customer" in session.call("create_customer", wrong).text
    assert CUSTOMERS == {}
    told = "refused: function rename: its `touches` raised KeyError: 7; nothing was done"
    assert session.call("rename", {"name": 7}).text == told
    assert session.changes() == []


def test_a_refusal_of_the_function_means_that_nothing_was_done(session: act.Session):
    assert "must not be empty" in session.call("create_customer", {"name": ""}).text
    assert [each.state for each in session.changes()] == [ActionState.FAILED]


def test_any_other_exception_leaves_the_action_in_doubt(session: act.Session):
    result = session.call("create_customer", {"name": "timeout"})
    assert "TimeoutError: no answer" in result.text
    assert result.action == session.changes()[0].action
    assert session.call("not_json").is_error
    assert [each.state for each in session.changes()] == [ActionState.IN_DOUBT] * 2
    assert CUSTOMERS == {1: "timeout"}  # called once


def test_an_undo_that_refuses_can_be_repeated_and_one_that_raises_is_in_doubt(session: act.Session):
    locked, lost = (session.call("create_customer", {"name": name}).action for name in ("locked", "lost"))
    with pytest.raises(InputError, match="TimeoutError"):
        session.undo(lost)
    with pytest.raises(InputError, match="the customer is locked"):
        session.undo(locked)
    assert [each.state for each in session.changes()] == [ActionState.UNDO_FAILED, ActionState.UNDO_IN_DOUBT]
    CUSTOMERS[1] = "unlocked"
    assert session.undo(locked) == [locked]


def test_a_function_without_undo_needs_a_grant_for_that(tmp_path: Path):
    (root := tmp_path / "project").mkdir()
    with act.session(root, functions=[send_mail], allow=["functions/**"]) as session:
        assert "not permitted" in session.call("send_mail", {"to": "ann"}).text
    grant = {"resources": ["functions/send_mail"], "minimum_guarantee": "none"}
    with act.session(root, functions=[send_mail], allow=[grant]) as session:
        result = session.call("send_mail", {"to": "ann"})
        assert result.guarantee == "none"
        with pytest.raises(InputError, match="the function has no undo"):
            session.undo(result.action)


def test_calls_depend_on_each_other_unless_they_say_what_they_touch(session: act.Session):
    first, second = (session.call("create_customer", {"name": name}).action for name in ("a", "b"))
    with pytest.raises(InputError, match=f"{second} came later"):
        session.undo(first)
    session.undo(all=True)
    one, _ = (session.call("set_key", {"key": key}).action for key in ("a", "b"))
    assert session.undo(one) == [one]


def test_programs_without_the_function_list_its_calls_and_do_not_undo_them(
    session: act.Session, monkeypatch: pytest.MonkeyPatch
):
    action = session.call("create_customer", {"name": "Ann"}).action
    monkeypatch.setattr(functions, "_KNOWN", {})
    listed = CliRunner().invoke(cli, ["act", "list", "--root", str(session.root)]).output
    assert f"{action}  executed      [1]   compensating  call create_customer(name='Ann')" in listed
    told = rf"only the program that defines 'create_customer' can undo .* session.undo\('{action}'\); nothing was taken"
    with open_session(session.root) as other, pytest.raises(InputError, match=told):
        other.undo(action)
    assert session.changes()[0].state is ActionState.EXECUTED


DYING = """
import os, sys, autoclave.act as act
@act.reversible(undo=lambda arguments, result: None)
def write_and_die(path: str) -> None:
    with open(path, "a") as file:
        file.write("called\\n")
    os.kill(os.getpid(), 9)
with act.session(sys.argv[1], functions=[write_and_die], allow=["functions/**"]) as session:
    session.call("write_and_die", {"path": sys.argv[2]})
"""


def test_an_interrupted_call_is_in_doubt_and_never_repeated(tmp_path: Path):
    (root := tmp_path / "project").mkdir()
    log = tmp_path / "log"
    assert subprocess.run([sys.executable, "-c", DYING, str(root), str(log)], check=False).returncode == -9
    for _ in range(2):
        with open_session(root) as session:
            (standing,) = session.journal.standings()
            assert standing.state is ActionState.IN_DOUBT
            assert log.read_text() == "called\n"
    with open_session(root) as session:
        (standing,) = session.journal.standings()
        settled = session.resolve(standing.action, ActionState.EXECUTED, "it is in the log")
        assert settled.state is ActionState.EXECUTED


def test_functions_that_cannot_be_called_by_name_are_refused(tmp_path: Path):
    async def wait() -> None: ...
    def variadic(*given: int) -> None: ...

    for function in (wait, variadic):
        with pytest.raises(UsageError, match=f"function {function.__name__}"):
            act.reversible()(function)
    with pytest.raises(UsageError, match="has no decorator"):
        act.session(tmp_path / "project", functions=[variadic])
    assert list(tmp_path.iterdir()) == []
