"""The MCP server with the official client: over stdio and HTTP, killed in a call, and several at once."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

import autoclave.act as act
from autoclave.cli.main import cli
from autoclave.core import UsageError
from autoclave.integrations.mcp.server import result_of, serve_http, server_of
from autoclave.runtime.opening import open_records
from autoclave.runtime.policy import Grant
from autoclave.runtime.states import ActionState
from tests.runtime.conftest import sealing_host

__all__ = ["sealing_host"]
TOKEN = "0123456789abcdef0123456789abcdef"
SERVER = (sys.executable, "-m", "autoclave", "act", "mcp")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    with open_records(folder) as (_, permissions):
        permissions.grant(Grant(resources=("files/**", "programs/**"), verbs=("*",)))
        permissions.grant(Grant(effect="forbid", resources=("files/kept/**",), verbs=("*",)))
    return folder


def parameters(root: Path, *more: str) -> StdioServerParameters:
    return StdioServerParameters(command=SERVER[0], args=[*SERVER[1:], "--root", str(root), *more])


def told(result: CallToolResult) -> Any:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text if result.is_error else json.loads(content.text)


async def work(client: Client, start: str = "start") -> None:
    """Change, look and undo; what a client of any transport sees."""
    tools = {each.name: each for each in (await client.list_tools()).tools}
    assert {"read", "list", "search", "edit", "write", "run"} <= tools.keys()
    assert {"list_changes", "diff", "undo", "undo_to", "savepoint", "explain_blast_radius"} <= tools.keys()
    assert "sql" not in tools
    hints = {name: each.annotations.model_dump() for name, each in tools.items() if each.annotations}
    for name, is_read_only, is_destructive in (
        *(("read", True, False), ("append", False, False)),
        *((name, False, True) for name in ("write", "edit", "delete", "run", "undo")),
    ):
        assert (hints[name]["read_only_hint"], hints[name]["destructive_hint"]) == (is_read_only, is_destructive)
    assert await call(client, "savepoint", name=start) == {"savepoint": start}
    edited = await client.call_tool("edit", {"path": "notes.txt", "old_string": "two", "new_string": "2"})
    assert told(edited)["changes"] == ["modify 'notes.txt'"]
    meta = {"autoclave/action": told(edited)["action"], "autoclave/guarantee": "exact"}
    assert (edited.meta or {}).items() >= meta.items()
    assert (await call(client, "read", path="notes.txt"))["content"] == "one\n2\n"
    assert "+2" in (await call(client, "diff", action=told(edited)["action"]))["diff"]
    refused = await client.call_tool("write", {"path": "kept/a", "content": ""})
    assert told(refused) == "refused: create or modify 'files/kept/a' is not permitted"
    explained = await call(client, "explain_blast_radius", tool="delete", arguments={"path": "notes.txt"})
    assert (explained["guarantee"], explained["weight"]) == ("exact", 1.0)
    assert await call(client, "undo_to", savepoint=start) == {"undone": [told(edited)["action"]]}
    *_, change = (await call(client, "list_changes"))["changes"]
    assert (change["action"], change["state"]) == (told(edited)["action"], "undone")


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return told(result)


def test_a_client_over_stdio_changes_looks_and_undoes(root: Path):
    async def main() -> None:
        async with Client(parameters(root), mode="legacy") as client:
            await work(client)

    anyio.run(main)
    assert (root / "notes.txt").read_text() == "one\ntwo\n"


@contextmanager
def http_server(root: Path) -> Iterator[str]:
    command = [*SERVER, "--root", str(root), "--http", "127.0.0.1:0"]
    environment = {**os.environ, "AUTOCLAVE_MCP_TOKEN": TOKEN}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield server.stdout.readline().split()[-1]
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=30) == 0


@asynccontextmanager
async def http_client(url: str, mode: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as connection,
        Client(streamable_http_client(url, http_client=connection), mode=mode) as client,
    ):
        yield client


def test_clients_over_http_need_the_token_and_the_name_of_the_server(root: Path):
    async def main(url: str) -> None:
        for mode in ("auto", "legacy"):
            async with http_client(url, mode) as client:
                await work(client, mode)
        right = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        async with httpx2.AsyncClient() as connection:
            for headers, status in (
                ({}, 401),
                ({"authorization": "Bearer wrong"}, 401),
                ({**right, "host": "evil.example"}, 421),
                ({**right, "origin": "https://evil.example"}, 403),
            ):
                for path in ("", "/other") if status == 401 else ("",):
                    answer = await connection.post(url + path, headers=headers, json={})
                    assert (answer.status_code, answer.text) == (status, answer.text)
            too_large = await connection.post(url, headers=right, content=b" " * (9 << 20))
            assert too_large.status_code == 413

    with http_server(root) as url:
        anyio.run(main, url)


def test_a_server_without_token_or_beyond_this_machine_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch):
    with act.session(root) as session:
        with pytest.raises(UsageError, match="must be one of"):
            serve_http(server_of(session), "0.0.0.0", 0, TOKEN, print)
        with pytest.raises(UsageError, match="must have 16 characters"):
            serve_http(server_of(session), "127.0.0.1", 0, "short", print)
    monkeypatch.delenv("AUTOCLAVE_MCP_TOKEN", raising=False)
    ended = CliRunner().invoke(cli, [*SERVER[3:], "--root", str(root), "--http", "127.0.0.1:0"])
    assert isinstance(ended.exception, UsageError)
    assert "needs a token" in str(ended.exception)


def test_a_server_that_is_killed_in_a_call_leaves_the_truth(root: Path, tmp_path: Path):
    log = tmp_path / "server.pid"
    script = (
        "import os, sys; from autoclave.runtime.execution import Execution; from autoclave.cli.main import cli\n"
        f"open({str(log)!r}, 'w').write(str(os.getpid()))\n"
        "record = Execution._record\n"
        "def deadly(self, action, *given):\n"
        "    if 'killed' in str(given): os.kill(os.getpid(), 9)\n"
        "    record(self, action, *given)\n"
        "Execution._record = deadly\n"
        f"cli({[*SERVER[3:], '--root', str(root)]!r})\n"
    )

    async def main() -> None:
        dying = StdioServerParameters(command=sys.executable, args=["-c", script])
        async with Client(dying) as client:
            await call(client, "write", path="before", content="")
            with pytest.raises(MCPError):
                await client.call_tool("write", {"path": "killed", "content": ""})
        async with Client(parameters(root)) as client:
            changes = (await call(client, "list_changes"))["changes"]
            assert [(each["operation"], each["state"]) for each in changes] == [
                ("write 'before'", "executed"),
                ("write 'killed'", "failed"),
            ]
            assert "the process died" in changes[1]["reason"]
            assert not (root / "killed").exists()
            await call(client, "undo")

    anyio.run(main)
    assert sorted(path.name for path in root.iterdir()) == ["notes.txt"]


def test_the_three_commands_of_the_page_undo_a_change_of_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parents[2] / "docs/how-to/act-agents.md").read_text(encoding="utf-8")
    commands = page.partition("```sh\n")[2].partition("```")[0].replace("$PWD", str(tmp_path)).splitlines()
    grant, add, undo = (shlex.split(each, comments=True) for each in commands)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    assert CliRunner().invoke(cli, grant[1:], catch_exceptions=False).exit_code == 0
    server = add[add.index("--") + 2 :]

    async def agent() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=["-m", "autoclave", *server])) as client:
            await call(client, "write", path="new", content="")

    anyio.run(agent)
    assert (tmp_path / "project/new").exists()
    assert CliRunner().invoke(cli, undo[1:], catch_exceptions=False).exit_code == 0
    assert not (tmp_path / "project/new").exists()


@pytest.mark.parametrize("num", [4, pytest.param(20, marks=pytest.mark.soak)])
def test_servers_at_the_same_time_lose_and_cross_nothing(root: Path, num: int):
    async def agent(name: str) -> None:
        async with Client(parameters(root, "--session", name)) as client:
            for number in range(5):
                await call(client, "write", path=f"{name}/{number}", content=name)
            changes = (await call(client, "list_changes"))["changes"]
            assert [each["operation"] for each in changes] == [f"write '{name}/{number}'" for number in range(5)]

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(num):
                group.start_soon(agent, f"s{number}")

    anyio.run(main)
    with act.session(root, name="s0") as session:
        found = session.changes(of_all_sessions=True)
        assert len(found) == 5 * num
        assert {each.state for each in found} == {ActionState.EXECUTED}
        assert all(each.session == each.operation["content"] for each in found)
        session.undo(all=True)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == sorted(f"s{n}" for n in range(1, num))


@pytest.mark.usefixtures("sealing_host")
def test_names_that_are_not_text_reach_the_client_escaped(tmp_path: Path):
    (root := tmp_path / "names").mkdir()
    (root / os.fsdecode(b"bad\xff")).write_text("needle\n")
    with act.session(root, allow=["files/**", "programs/**"]) as session:

        def sent(tool: str, **given: Any) -> Any:
            answer = result_of(session.call(tool, given)).model_dump_json()
            return told(CallToolResult.model_validate_json(answer))

        assert sent("search", text="needle")["matches"][0].startswith("bad\udcff")
        action = sent("run", command=["sh", "-c", "echo more >> bad*"])["action"]
        assert "bad" in sent("diff", action=action)["diff"]
        sent("append", path="bad\udcff", content="")
        assert sent("list_changes")["changes"][-1]["operation"] == "append 'bad\\udcff'"
        assert sent("append", path="none\udcff", content="") == "refused: path 'none\\udcff': there is nothing"


def test_calls_that_are_sent_together_are_all_done(root: Path):
    async def main() -> None:
        with act.session(root, name="agent") as session:
            async with Client(server_of(session)) as client, anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(client.call_tool, "append", {"path": "log", "content": f"{number}\n"})
                    if not number:
                        await client.call_tool("write", {"path": "log", "content": ""})
            assert len(session.changes()) == 11

    anyio.run(main)
