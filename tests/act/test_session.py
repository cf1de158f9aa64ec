"""Sessions of programs: tools, results, undo of one's own actions, and others on the same state at the same time."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import autoclave.act as act
from autoclave.cli.main import cli
from autoclave.core import InputError
from autoclave.runtime.interface import NotPermitted
from autoclave.runtime.opening import open_records, open_session
from autoclave.runtime.states import ActionState
from tests.runtime import conftest

sealing_host = conftest.sealing_host
ALL = ("files/**", "programs/**")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\ntwo\n")
    return folder


def test_a_call_is_done_shown_and_undone(root: Path):
    with act.session(root, name="agent", allow=ALL) as session:
        result = session.call("write", '{"path": "notes.txt", "content": "v2"}')
        assert (result.guarantee, result.is_error, list(result.changes)) == ("exact", False, ["modify 'notes.txt'"])
        assert json.loads(result.text) == {
            "action": result.action,
            "guarantee": "exact",
            "changes": ["modify 'notes.txt'"],
        }
        assert "+v2" in session.diff(result.action)
        (change,) = session.changes()
        assert (change.action, change.state, change.session) == (result.action, ActionState.EXECUTED, "agent")
        assert session.undo(last=1) == [result.action]
        assert (root / "notes.txt").read_text() == "one\ntwo\ntwo\n"
        assert session.redo(result.action).state is ActionState.REDONE
        session.commit()
        assert session.changes()[0].state is ActionState.COMMITTED
    assert (root / "notes.txt").read_text() == "v2"


def test_a_read_returns_its_content_and_is_no_change(root: Path):
    with act.session(root, allow=ALL) as session:
        result = session.call("read", {"path": "notes.txt"})
        assert (result.output["content"], result.guarantee, session.changes()) == ("one\ntwo\ntwo\n", None, [])


@pytest.mark.usefixtures("sealing_host")
def test_a_command_that_changes_nothing_leaves_nothing_to_undo(root: Path):
    with act.session(root, allow=ALL) as session:
        written = session.call("write", {"path": "a", "content": ""}).action
        assert session.call("run", {"command": ["cat", "notes.txt"]}).output["stdout"] == "one\ntwo\ntwo\n"
        assert [each.state for each in session.changes()] == [ActionState.EXECUTED, ActionState.COMMITTED]
        assert session.undo(last=1) == [written]


def test_a_denial_shows_the_model_no_grant(root: Path):
    with act.session(root, allow=["files/src/**"]) as session:
        result = session.call("write", {"path": "notes.txt", "content": "v2"})
    assert result.text == "refused: create or modify 'files/notes.txt' is not permitted"
    assert "autoclave act grant" in getattr(result.error, "hint", "")
    assert "grant" not in repr(result)


def test_grants_of_a_session_end_with_it(root: Path):
    with act.session(root, name="agent", allow=ALL), open_records(root, name="agent") as (_, permissions):
        assert len(permissions.grants()) == 2
        with open_records(root, name="other") as (_, others):
            assert others.grants() == []
    with open_records(root, name="agent") as (_, permissions):
        assert permissions.grants() == []


def test_where_opening_fails_no_grant_stays(root: Path):
    narrowing = {"resources": ["files/a"], "parent": "unknown"}
    with pytest.raises(InputError, match="narrows 'unknown'"):
        act.session(root, name="agent", allow=["files/**", narrowing])
    with open_records(root, name="agent") as (_, permissions):
        assert permissions.grants() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("not json", "not usable JSON"),
        ('["a"]', "must be an object"),
        ({"do": "run", "command": ["true"]}, "must be an object"),
        ({"path": "a", "contents": "b"}, "contents"),
    ],
)
def test_calls_that_are_not_valid_are_results(root: Path, arguments: object, told: str):
    with act.session(root, allow=ALL) as session:
        result = session.call("write", arguments)  # pyright: ignore[reportArgumentType]
    assert result.is_error
    assert told in result.text


def test_a_tool_that_is_not_offered_is_refused(root: Path):
    with act.session(root, allow=ALL) as session:
        for name in ("call", "sql", "rm"):
            assert session.call(name, {}).is_error


def test_an_action_that_exceeds_the_budget_is_discarded(root: Path):
    with act.session(root, allow=ALL, budget=1.0) as session:
        assert not session.call("write", {"path": "a", "content": ""}).is_error
        refused = session.call("write", {"path": "b", "content": ""})
        assert "too much stands uncommitted" in refused.text
        assert [each.state for each in session.changes()] == [ActionState.EXECUTED, ActionState.FAILED]


def parameters_of(tool: dict[str, Any]) -> dict[str, Any]:
    return (tool.get("parameters") or tool["input_schema"])["properties"]


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_tools_are_shown_in_the_form_of_the_api(root: Path, form: str):
    with act.session(root) as session:
        shown = session.tools(form)  # pyright: ignore[reportArgumentType]
    by_name = (
        {each["function"]["name"]: each["function"] for each in shown}
        if form == "openai"
        else {each["name"]: each for each in shown}
    )
    schema = by_name["edit"]["parameters" if form == "openai" else "input_schema"]
    assert schema["required"] == ["path", "old_string", "new_string"]
    assert schema["properties"]["old_string"]["description"].startswith("The text to replace")
    assert all("description" in each for tool in by_name.values() for each in parameters_of(tool).values())
    assert {"read", "write", "run", "undo", "explain_blast_radius"} <= by_name.keys()
    assert {"sql", "request", "commands", "call"}.isdisjoint(by_name)


def test_a_connected_database_has_a_tool_that_shows_its_schema(root: Path, tmp_path: Path):
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, price INTEGER)")
        shop.execute("INSERT INTO item VALUES (1, 20)")
    settings = {"shop": {"engine": "sqlite", "path": str(tmp_path / "shop.db")}}
    with act.session(root, databases=settings, allow=["databases/**"]) as session:
        tool = next(each for each in session.tool_list() if each.name == "sql")
        assert tool.parameters["properties"]["database"]["enum"] == ["shop"]
        assert "item" in tool.description
        result = session.call("sql", {"database": "shop", "statements": ["UPDATE item SET price = 40"]})
        assert result.changes == ("modify 1 row of shop/main/item",)
        session.undo(result.action)
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        assert shop.execute("SELECT price FROM item").fetchall() == [(20,)]
    shop.close()


def test_a_connected_service_has_a_tool_that_lists_its_operations(root: Path):
    settings = {"calendar": {"base_url": "http://127.0.0.1:9", "catalogue": "radicale", "allows_private": True}}
    with act.session(root, services=settings, wait_s=20.0) as session:
        tool = next(each for each in session.tool_list() if each.name == "request")
    assert tool.parameters["properties"]["service"]["enum"] == ["calendar"]
    assert "make_calendar" in tool.description
    assert tool.reaches_outside


def test_an_exclusive_session_keeps_a_transaction_open(root: Path, tmp_path: Path):
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
    settings = {"shop": {"engine": "sqlite", "path": str(tmp_path / "shop.db"), "mode": "transaction"}}
    statement = {"database": "shop", "statements": ["INSERT INTO item VALUES (1)"]}
    with act.session(root, databases=settings, allow=["databases/**"]) as session:
        assert session.call("sql", statement).is_error
    with act.session(root, allow=["databases/**"], exclusive=True) as session:
        assert not session.call("sql", statement).is_error
        with pytest.raises(InputError, match="another session works on"):
            open_session(root)
        session.commit()
    assert shop.execute("SELECT count(*) FROM item").fetchone() == (1,)
    shop.close()


def test_a_blast_radius_is_explained_without_doing_anything(root: Path):
    with act.session(root, allow=ALL) as session:
        told = session.call("explain_blast_radius", {"tool": "delete", "arguments": {"path": "notes.txt"}}).output
        assert (told["guarantee"], told["weight"], told["changes"]) == ("exact", 1.0, ["delete 'notes.txt'"])
        assert told["accesses"] == [{"verb": "delete", "resource": "files/notes.txt", "files": 1, "bytes_deleted": 12}]
        assert session.changes() == []
        edit = {"path": "notes.txt", "old_string": "one", "new_string": "1"}
        told = session.call("explain_blast_radius", {"tool": "edit", "arguments": edit}).output
        assert [each["verb"] for each in told["accesses"]] == ["read", "modify"]


@pytest.mark.usefixtures("sealing_host")
def test_a_networked_command_runs_only_by_a_call_and_is_listed_where_it_fails(root: Path):
    grants: list[dict[str, Any]] = [
        {"resources": ["files/**"], "verbs": ["read", "modify"], "minimum_guarantee": "none"},
        {"resources": ["programs/*", "network/host"], "minimum_guarantee": "none"},
    ]
    with socket.create_server(("127.0.0.1", 0)) as server, act.session(root, allow=grants) as session:
        server.settimeout(0.0)

        def given(then: str) -> dict[str, Any]:
            source = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]})); {then}"
            return {"command": ["python3", "-c", source], "network": True}

        told = session.call("explain_blast_radius", {"tool": "run", "arguments": given("")}).output
        assert told["guarantee"] == "none"
        assert {"verb": "use", "resource": "network/host"} in told["accesses"]
        with pytest.raises(BlockingIOError):
            server.accept()
        assert session.changes() == []
        for then, why in (("exit(3)", "exited with 3"), ("open('new', 'w')", "create 'files/new' is not permitted")):
            failed = session.call("run", given(then))
            server.accept()[0].close()
            assert why in failed.text
            assert "files are unchanged, and what it did over the network stands" in failed.text
            change = session.changes()[-1]
            assert (change.action, change.state, change.guarantee) == (failed.action, ActionState.FAILED, "none")
        session.plan({"do": "run", **given("")})
        assert [each.state for each in session.changes()] == [ActionState.FAILED] * 3
        assert "it was only planned" in session.changes()[-1].reason
        outside = {each.name for each in session.tool_list() if each.reaches_outside}
        assert outside == {"run", "python"}
    assert [path.name for path in root.iterdir()] == ["notes.txt"]


def test_the_tools_for_undo_take_back_what_the_session_did(root: Path):
    with act.session(root, allow=ALL) as session:
        first = session.call("append", {"path": "notes.txt", "content": "three\n"}).action
        assert session.call("savepoint", {"name": "before"}).output == {"savepoint": "before"}
        second = session.call("write", {"path": "new", "content": ""}).action
        assert "new" in session.call("diff", {"action": second}).output["diff"]
        shown = session.call("list_changes", {"last": 1}).output
        assert [each["operation"] for each in shown["changes"]] == ["write 'new'"]
        assert shown["left_out"] == 1
        assert session.call("undo_to", {"savepoint": "before"}).output == {"undone": [second]}
        assert session.call("undo", {}).output == {"undone": [first]}
        assert session.call("undo", {"actions": [first]}).is_error
    assert (root / "notes.txt").read_text() == "one\ntwo\ntwo\n"


def test_a_session_undoes_its_own_actions_only(root: Path):
    with act.session(root, name="ann", allow=ALL) as ann, act.session(root, name="bob", allow=ALL) as bob:
        first = ann.call("write", {"path": "shared", "content": "1"}).action
        ann.savepoint("start")
        own = ann.call("write", {"path": "own", "content": "1"}).action
        with pytest.raises(InputError, match="savepoint 'start': session 'ann' has one of that name already"):
            bob.savepoint("start")
        other = bob.call("append", {"path": "shared", "content": "2"}).action
        with pytest.raises(InputError, match=f"action {other}: is of session 'bob'"):
            ann.undo(other)
        for way in ({"all": True}, {"last": 2}, {"all": True, "dependents": True}):
            with pytest.raises(InputError, match=f"action {first}: {other} of session 'bob' came later and depend"):
                ann.undo(**way)  # pyright: ignore[reportArgumentType]
        assert ann.undo_to("start") == [own]
        with pytest.raises(InputError, match="session 'bob' has none of that name"):
            bob.undo_to("start")
        assert bob.undo(all=True) == [other]
        assert ann.undo(all=True) == [first]
    assert not (root / "shared").exists()


def test_the_command_line_undoes_the_actions_of_one_session(root: Path):
    def undone(*words: str) -> str:
        return CliRunner().invoke(cli, ["act", "undo", *words, "--root", str(root)], standalone_mode=False).output

    with act.session(root, name="ann", allow=ALL) as ann, act.session(root, name="bob", allow=ALL) as bob:
        first, start = ann.call("write", {"path": "a", "content": ""}).action, ann.savepoint()
        second = ann.call("write", {"path": "b", "content": ""}).action
        other = bob.call("append", {"path": "a", "content": "2"}).action
        assert undone("--to", start, "--session", "ann") == f"undone: {second}  write 'b'\n"
        error = CliRunner().invoke(cli, ["act", "undo", "--all", "--session", "ann", "--root", str(root)]).exception
        assert f"{other} of session 'bob' came later" in str(error)
        assert undone("--last", "5", "--session", "bob") == f"undone: {other}  append 'a'\n"
        listed = CliRunner().invoke(cli, ["act", "list", "--root", str(root)]).output
        assert "write 'a'  (ann)\n" in listed
        assert undone("--all") == f"undone: {first}  write 'a'\n"


def test_calls_of_several_threads_are_done_one_after_another(root: Path):
    with act.session(root, allow=ALL) as session, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: session.call("write", {"path": f"f{n}", "content": f"{n}"}), range(24)))
        assert not [each.text for each in results if each.is_error]
        assert sorted(each.action for each in results) == sorted(each.action for each in session.changes())


def test_a_call_waits_for_another_session_and_not_for_ever(root: Path):
    with act.session(root, allow=ALL, wait_s=0.05) as session:
        with open_session(root):
            refused = session.call("read", {"path": "notes.txt"})
            assert "another session works on" in refused.text
        other = open_session(root)
        threading.Timer(0.1, other.close).start()
        session._opened.keywords["wait_s"] = 20.0  # pyright: ignore[reportFunctionMemberAccess]
        assert not session.call("read", {"path": "notes.txt"}).is_error


WORK = """
import sys, autoclave.act as act
with act.session(sys.argv[1], name=sys.argv[2], allow=["files/**"]) as session:
    for number in range(int(sys.argv[3])):
        result = session.call("write", {"path": f"{session.name}/{number}", "content": session.name})
        assert not result.is_error, result.text
"""


@pytest.mark.parametrize("num", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_processes_share_a_state_without_lost_or_crossed_actions(root: Path, num: int):
    workers = [subprocess.Popen([sys.executable, "-c", WORK, str(root), f"s{n}", "5"]) for n in range(num)]
    assert [each.wait(timeout=120) for each in workers] == [0] * num
    with act.session(root, name="s0") as session:
        found = session.changes(of_all_sessions=True)
        assert len(found) == 5 * num
        for each in found:
            assert each.operation["content"] == each.session == Path(each.operation["path"]).parts[0]
        assert len(session.undo(all=True)) == 5
        assert session.call("list_changes").output["left_out"] == 0
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == sorted(f"s{n}" for n in range(1, num))


def test_a_process_that_dies_in_a_call_leaves_the_truth(root: Path):
    script = (
        "import os, sys, autoclave.act as act\n"
        "from autoclave.runtime.execution import Execution\n"
        "Execution._record = lambda *given: os.kill(os.getpid(), 9)\n"
        "act.session(sys.argv[1], name='agent', allow=['files/**']).call('write', {'path': 'notes.txt'})\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(root)], check=False).returncode == -9
    with act.session(root, name="agent") as session:
        (change,) = session.changes()
        assert (session.recovered, change.state) == ([change.action], ActionState.FAILED)
        assert "the process died" in str(change)
    assert (root / "notes.txt").read_text() == "one\ntwo\ntwo\n"


def test_a_session_can_be_awaited(root: Path):
    async def work() -> list[str]:
        async with act.async_session(root, allow=ALL) as session:
            await session.savepoint("start")
            calls = (session.call("write", {"path": f"f{number}", "content": ""}) for number in range(5))
            results = await asyncio.gather(*calls)
            assert [each.is_error for each in results] == [False] * 5
            assert "f0" in await session.diff(results[0].action)
            return await session.undo_to("start")

    assert len(asyncio.run(work())) == 5
    assert [path.name for path in root.iterdir()] == ["notes.txt"]


def test_a_session_on_an_unusable_folder_says_so(tmp_path: Path):
    with pytest.raises(InputError):
        act.session(tmp_path / "missing")

    async def work() -> None:
        async with act.async_session(tmp_path / "missing"):
            pass

    with pytest.raises(InputError):
        asyncio.run(work())


def test_a_difference_shows_a_model_only_what_it_may_read(root: Path, tmp_path: Path):
    (root / ".env").write_text("PASSWORD=1\n")
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        shop.execute("INSERT INTO item VALUES (1, 'private')")
    shop.close()
    databases = {"shop": {"engine": "sqlite", "path": str(tmp_path / "shop.db")}}
    writing = {"resources": ["files/**", "files/.env"], "verbs": ["create", "modify", "delete"]}
    with act.session(root, allow=[writing, "databases/**"], databases=databases) as session:
        for path in ("notes.txt", ".env"):
            action = session.call("write", {"path": path, "content": "v2"}).action
            shown = session.call("diff", {"action": action})
            assert shown.text == f"refused: read 'files/{path}' is not permitted"
            assert "+v2" in session.diff(action)  # the program sees all
        rows = session.call("sql", {"database": "shop", "statements": ["DELETE FROM item"]})
        assert "private" not in session.call("diff", {"action": rows.action}).text
        session.undo(all=True)
    (root / "key").write_text("-----BEGIN PRIVATE KEY-----\n")
    with act.session(root, name="other", allow=["files/**"]) as other:
        assert "is of session" in other.call("diff", {"action": action}).text
        deleted = other.call("delete", {"path": "key"}).action
        assert "a private key is in its difference" in other.call("diff", {"action": deleted}).text


def test_a_session_redoes_and_commits_its_own_actions_alone(root: Path):
    with act.session(root, name="agent", allow=ALL) as agent, act.session(root, name="other", allow=ALL) as other:
        action = agent.call("write", {"path": "notes.txt", "content": "v2"}).action
        with pytest.raises(InputError, match="is of session 'agent'"):
            other.commit(action)
        agent.undo(action)
        with pytest.raises(InputError, match="is of session 'agent'"):
            other.redo(action)
    assert (root / "notes.txt").read_text() == "one\ntwo\ntwo\n"


def test_after_stop_only_the_user_undoes(root: Path):
    def command(*words: str) -> str:
        told = CliRunner().invoke(cli, ["act", *words, "--root", str(root)], catch_exceptions=False)
        assert told.exit_code == 0
        return told.output

    with act.session(root, name="agent", allow=ALL) as agent:
        agent.savepoint("start")
        actions = [agent.call("write", {"path": path, "content": ""}).action for path in "ab"]
        for scope in (("--session", "agent"), ()):
            grant = command("stop", *scope).split()[0]
            for tool, given in (("undo", {}), ("undo_to", {"savepoint": "start"})):
                assert agent.call(tool, given).text == "refused: undo is not permitted: the user stopped this session"
            with pytest.raises(NotPermitted, match="the user stopped this session"):
                agent.commit()
            command("undo", "--last", "1")
            command("revoke", grant, *scope)
        assert [each.state for each in agent.changes()] == [ActionState.UNDONE] * 2
        agent.redo(actions[0])
        assert agent.call("undo", {}).output == {"undone": actions[:1]}


def test_the_command_line_works_between_two_calls(root: Path):
    with act.session(root, allow=ALL) as session:
        action = session.call("write", {"path": "notes.txt", "content": "v2"}).action
        ended = CliRunner().invoke(cli, ["act", "undo", action, "--root", str(root)], catch_exceptions=False)
        assert ended.exit_code == 0
        assert session.changes()[0].state is ActionState.UNDONE
        CliRunner().invoke(cli, ["act", "stop", "--root", str(root)], catch_exceptions=False)
        assert session.call("write", {"path": "notes.txt", "content": "v2"}).is_error
