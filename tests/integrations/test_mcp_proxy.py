"""Tools of other MCP servers as actions: sealed, journalled, and undone byte for byte."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, TextContent

import autoclave.act as act
from autoclave.core import UsageError
from autoclave.integrations.mcp.proxy import Proxy
from autoclave.integrations.mcp.server import server_of
from autoclave.runtime.opening import default_state
from autoclave.runtime.states import ActionState
from tests.runtime import conftest
from tests.runtime.oauth.servers import NODE_MODULES, node
from tests.runtime.trees import manifest

sealing_host = conftest.sealing_host
FILESYSTEM = NODE_MODULES / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
SMALL = """
import json, pathlib, socket, sys
print("a log on the wrong stream", flush=True)

def answer(asked):
    name, given = asked["params"].get("name"), asked["params"].get("arguments")
    match asked["method"], name:
        case "initialize", _:
            print(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}), flush=True)
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "small"}}
        case "tools/list", _:
            page = int(asked["params"].get("cursor", 0))
            names = ["write", "fail", "reach", "garble", "undo", "say"]
            tool = {"name": names[page], "inputSchema": {"type": "object"}}
            return {"tools": [tool], **({"nextCursor": str(page + 1)} if page < len(names) - 1 else {})}
        case "tools/call", "write":
            pathlib.Path(given["path"]).write_text(given["text"])
            return {"content": [{"type": "text", "text": "written"}], "isError": given.get("fails", False)}
        case "tools/call", "fail":
            pathlib.Path("half").write_text("")
            raise ValueError("cannot do it")
        case "tools/call", "reach":
            socket.create_connection(("192.0.2.1", 80), 1)
        case "tools/call", "garble":
            pathlib.Path("half").write_text("")
            return {"content": "not a list"}
        case "tools/call", "say":
            return {"content": [{"type": "text", "text": "x" * given["length"]}]}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        told = {"jsonrpc": "2.0", "id": asked["id"]}
        try:
            told["result"] = answer(asked)
        except Exception as error:
            told["error"] = {"code": -32000, "message": str(error)}
        print(json.dumps(told), flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    return folder


@contextmanager
def opened(root: Path, name: str, command: list[str], *allow: str) -> Iterator[tuple[act.Session, Proxy]]:
    proxy = Proxy(name, command, root)
    grants = allow or ("files/**", "files/.git/**", f"programs/{name}")
    with act.session(root, name="agent", allow=grants, **proxy.settings(default_state(root))) as session:
        yield session, proxy


def small(root: Path) -> list[str]:
    (server := root.parent / "small.py").write_text(SMALL)
    return [sys.executable, str(server)]


def content(result: CallToolResult) -> list[str]:
    return [each.text for each in result.content if isinstance(each, TextContent)]


def called(root: Path, name: str, command: list[str], *calls: tuple[str, dict[str, Any]]) -> list[CallToolResult]:
    """Make the calls; undo them all by the tool of the proxy, and compare the folder."""
    before = manifest(root)

    async def main() -> list[CallToolResult]:
        with opened(root, name, command) as (session, proxy):
            async with Client(server_of(session, proxy)) as client:
                results = [await client.call_tool(*each) for each in calls]
                changed = manifest(root)
                assert changed != before
                undone = await client.call_tool("undo", {"last": 100})
                assert not undone.is_error, undone
        return results

    results = anyio.run(main)
    assert manifest(root) == before
    return results


@pytest.mark.usefixtures("sealing_host")
def test_edits_of_the_filesystem_server_are_undone_byte_for_byte(root: Path):
    program = node()
    if not FILESYSTEM.exists():
        pytest.skip("server-filesystem is not installed; make setup-services")
    edits = [{"oldText": "two", "newText": "2"}]
    results = called(
        root,
        "filesystem",
        [program, str(FILESYSTEM), str(root)],
        ("write_file", {"path": str(root / "new.txt"), "content": "new"}),
        ("edit_file", {"path": str(root / "notes.txt"), "edits": edits}),
        ("move_file", {"source": str(root / "new.txt"), "destination": str(root / "moved.txt")}),
        ("read_text_file", {"path": str(root / "notes.txt")}),
        ("write_file", {"path": str(root.parent / "outside"), "content": ""}),
    )
    assert [each.is_error for each in results] == [False] * 4 + [True]
    assert content(results[1])[-1].endswith("guarantee exact: modify 'notes.txt'")
    assert content(results[3])[0] == "one\n2\n"
    assert content(results[3])[-1].endswith("nothing was changed")


@pytest.mark.soak  # the server takes seconds to start, for each call
@pytest.mark.usefixtures("sealing_host")
def test_commits_of_the_git_server_are_undone_byte_for_byte(root: Path):
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    place = {"repo_path": str(root)}
    results = called(
        root,
        "mcp-server-git",
        [str(Path(sys.executable).with_name("mcp-server-git")), "--repository", str(root)],
        ("git_add", {**place, "files": ["notes.txt"]}),
        ("git_commit", {**place, "message": "first"}),
        ("git_create_branch", {**place, "branch_name": "other"}),
    )
    assert [each.is_error for each in results] == [False] * 3


@pytest.mark.usefixtures("sealing_host")
def test_a_call_is_an_action_and_what_fails_leaves_nothing(root: Path):
    async def main() -> None:
        with opened(root, "small", small(root)) as (session, proxy):
            async with Client(server_of(session, proxy)) as client:
                names = [each.name for each in (await client.list_tools()).tools]
                assert names == [
                    "write",
                    "fail",
                    "reach",
                    "garble",
                    "undo",
                    "say",
                    "list_changes",
                    "diff",
                    "undo_to",
                    "savepoint",
                ]
                written = await client.call_tool("write", {"path": "a", "text": "\u00e4", "fails": True})
                assert written.is_error  # what a tool did before it gave up is kept, and can be undone
                (change,) = session.changes()
                assert (root / "a").read_text() == "\u00e4"
                assert content(written) == ["written", f"action {change.action}, guarantee exact: create 'a'"]
                assert "cannot do it" in content(await client.call_tool("fail", {}))[0]
                garbled = content(await client.call_tool("garble", {}))[0]
                assert "server small: content: " in garbled
                assert "nothing was done" in garbled
                assert not (root / "half").exists()
                assert "not permitted" in content(await client.call_tool("reach", {}))[0]
                large = await client.call_tool("say", {"length": 500_000})
                assert len(content(large)[0]) == 500_000
                assert "printed more than" in content(await client.call_tool("say", {"length": 2_000_000}))[0]
                for unknown in ("run", "explain_blast_radius", "nothing"):
                    with pytest.raises(MCPError, match=f"tool {unknown}: there is none"):
                        await client.call_tool(unknown, {})
                states = [each.state for each in session.changes()]
                assert states == [ActionState.EXECUTED, ActionState.COMMITTED]

    anyio.run(main)


@pytest.mark.usefixtures("sealing_host")
def test_what_no_grant_covers_is_not_applied(root: Path):
    denied = pytest.raises(UsageError, match=r"read 'files/\*\*' is not permitted.*autoclave act grant")
    with opened(root, "small", small(root), "files/notes.txt", "programs/small") as (session, proxy), denied:
        proxy.tools(session)
    reading = {"resources": ["files/**"], "verbs": ["read"]}
    with act.session(root, allow=[reading, "programs/small"], **proxy.settings(default_state(root))) as session:
        assert len(proxy.tools(session).tools) == 6
        result, answer = proxy.call(session, "write", {"path": "a", "text": ""})
        assert (result.text, answer) == ("refused: create 'files/a' is not permitted", None)
    assert not (root / "a").exists()


@pytest.mark.usefixtures("sealing_host")
def test_two_servers_of_one_name_do_not_answer_for_each_other(root: Path):
    (other := root.parent / "other.py").write_text(SMALL.replace('"written"', '"by the other"'))
    with (
        opened(root, "small", small(root)) as (session, proxy),
        opened(root, "small", [sys.executable, str(other)]) as (second, another),
    ):
        proxy.tools(session)
        another.tools(second)
        _, answer = proxy.call(session, "write", {"path": "a", "text": ""})
        assert answer is not None
        assert content(answer)[0] == "written"


def test_a_program_that_does_not_exist_is_refused(root: Path):
    with pytest.raises(UsageError, match="there is no such program"):
        Proxy("none", ["no-such-program"], root)
