"""The hooks of agent hosts, end to end: their JSON, a client process, the resident observer, and an ordinary undo."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.act import client, resident
from autoclave.act.observer import observer_folder
from autoclave.act.resident import use_from
from autoclave.cli.main import cli
from autoclave.runtime.opening import alone_on, open_session

FOLDER = Path(client.__file__).parent
CLIENTS = {"compiled": [f"{FOLDER / '_hook'}"], "python": [sys.executable, "-I", "-S", f"{FOLDER / 'client.py'}"]}
WITH_EACH_CLIENT = pytest.mark.parametrize("host", CLIENTS.values(), ids=CLIENTS, indirect=True)
EVENTS = {"PreToolUse": "before", "PostToolUse": "after", "Stop": "end", "SessionStart": "start"}


def given(event: str, tool: str = "", **tool_input: Any) -> dict[str, Any]:
    """The JSON that Claude Code gives to a hook."""
    common = {
        "session_id": "b1d4e2a6-0c3f-4d53-9b62-0e9a9a1c6b77",
        "transcript_path": "/home/me/.claude/projects/-home-me-project/b1d4e2a6.jsonl",
        "cwd": "/home/me/project",
        "permission_mode": "auto",
        "hook_event_name": event,
    }
    if not tool:
        return common
    about = {"tool_name": tool, "tool_input": tool_input, "tool_use_id": f"toolu_{tool}"}
    return {**common, **about, **({"tool_response": {"success": True}} if event == "PostToolUse" else {})}


class Host:
    """A host whose hooks are those of Autoclave on a folder."""

    def __init__(self, root: Path, program: list[str]) -> None:
        self.root, self.program = root, program
        self.folder = observer_folder(root.parent / ".autoclave-project")

    def fire(self, what: dict[str, Any]) -> tuple[int, str]:
        event = EVENTS[what["hook_event_name"]]
        fallback = [sys.executable, "-I", "-m", "autoclave", "act", "hook", event, "--root", str(self.root)]
        command = [*self.program, str(self.folder), event, *fallback]
        ended = subprocess.run(command, input=json.dumps(what), capture_output=True, text=True, check=False)
        assert ended.stdout == ""
        return ended.returncode, ended.stderr

    def use(self, tool: str, script: str, **tool_input: Any) -> None:
        assert self.fire(given("PreToolUse", tool, **tool_input)) == (0, "")
        subprocess.run(["sh", "-c", script], cwd=self.root, check=True)
        assert self.fire(given("PostToolUse", tool, **tool_input)) == (0, "")

    def observer(self) -> int | None:
        """The process that has the lock of the observer."""
        inode = (self.folder / "observer.lock").stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                return int(words[4])
        return None

    def kill(self) -> None:
        if pid := self.observer():
            os.kill(pid, signal.SIGKILL)
            while self.observer() == pid:
                time.sleep(0.01)


@pytest.fixture
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    program = getattr(request, "param", CLIENTS["python"])
    if not Path(program[0]).exists():
        pytest.skip("the hook is not compiled here")
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
    found = Host(root, program)
    yield found
    with contextlib.suppress(FileNotFoundError):
        found.kill()


@WITH_EACH_CLIENT
def test_tool_uses_of_claude_code_are_listed_and_undone(host: Host):
    assert host.fire(given("SessionStart")) == (0, "")
    host.use("Edit", "echo edited > a.txt", file_path="/p/a.txt", old_string="first", new_string="edited")
    host.use("Write", "echo new > b.txt", file_path="/p/b.txt", content="new\n")
    host.use("Bash", "mkdir c; mv b.txt c; chmod +x a.txt", command="mkdir c; mv b.txt c", description="Move it")
    host.use("Read", "cat a.txt", file_path="/p/a.txt")
    assert host.fire(given("Stop")) == (0, "")
    run = CliRunner().invoke
    listed = run(cli, ["act", "list", "--root", str(host.root)]).output.splitlines()
    assert [line.split(maxsplit=4)[-1] for line in listed] == [
        "Edit '/p/a.txt'",
        "Write '/p/b.txt'",
        "Bash 'mkdir c; mv b.txt c'",
    ]
    for line in reversed(listed):
        undone = run(cli, ["act", "undo", line.split()[0], "--root", str(host.root)])
        assert undone.exit_code == 0, undone.output
    assert {path.name: path.read_text() for path in host.root.iterdir()} == {"a.txt": "first\n"}


@WITH_EACH_CLIENT
def test_an_observer_that_is_killed_during_a_tool_use_is_started_again_and_loses_nothing(host: Host):
    assert host.fire(given("PreToolUse", "Bash", command="x")) == (0, "")
    host.kill()
    (host.root / "a.txt").write_text("by the tool")
    assert host.fire(given("PostToolUse", "Bash", command="x")) == (0, "")
    with open_session(host.root, wait_s=5) as session:
        (action,) = [each.action for each in session.journal.standings()]
        session.undo(action)
    assert (host.root / "a.txt").read_text() == "first\n"


def test_what_is_not_covered_is_told_and_does_not_block(host: Host, monkeypatch: pytest.MonkeyPatch):
    assert host.fire(given("PreToolUse", "Bash", command="x")) == (0, "")
    for copy in (host.folder / "copies").iterdir():
        copy.unlink()
    (host.root / "a.txt").write_text("by the tool")
    told = "autoclave: not covered: 'a.txt' has no pre-image\n"
    assert host.fire(given("PostToolUse", "Bash", command="x")) == (1, told)


def test_a_root_that_cannot_be_observed_is_told_and_does_not_block(host: Host):
    host.root = host.root / "nowhere"
    code, told = host.fire(given("PreToolUse", "Bash", command="x"))
    assert code == 1
    assert "must be a folder that can be read" in told
    assert told.endswith("undo may not cover this tool use\n")


def test_a_session_that_does_not_end_delays_the_record_to_the_next_hook(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("autoclave.act.observer._WAIT_S", 0.01)
    with resident.Observer(host.root) as observer:
        what = given("PreToolUse", "Bash", command="x")
        assert resident.handled(observer, "before", json.dumps(what).encode()) == ""
        (host.root / "a.txt").write_text("by the tool")
        with alone_on(host.root):
            told = resident.handled(observer, "after", json.dumps(what).encode())
        assert "another process works with it" in told
        assert "the next hook tries again" in told
        assert resident.handled(observer, "end", json.dumps(given("Stop")).encode()) == ""
    with open_session(host.root) as session:
        assert [each.proposed["operation"]["tool"] for each in session.journal.standings()] == ["Bash"]


def test_nonsense_is_refused_and_the_observer_lives_on(host: Host):
    host.fire(given("SessionStart"))
    pid = host.observer()
    for nonsense in (b"", b"[]", b"\xff", b"{"):
        assert b"must be the JSON object" in client.exchange(str(host.folder), "before", nonsense)
    assert b"must be one of start, before, after, end" in client.exchange(str(host.folder), "other", b"{}")
    assert host.observer() == pid


def test_input_that_is_nested_too_deeply_is_told_and_the_observer_lives_on(host: Host):
    host.fire(given("SessionStart"))
    pid = host.observer()
    nested = b'{"tool_input": {"data": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}"
    assert b"nested too deeply; undo may not cover" in client.exchange(str(host.folder), "before", nested)
    assert host.observer() == pid


def test_a_folder_that_is_replaced_during_a_tool_use_is_observed_from_then_on(host: Host):
    host.use("Bash", "rm -r $PWD; mkdir $PWD; echo tool > $PWD/a.txt; echo tool > $PWD/b.txt", command="x")
    with open_session(host.root, wait_s=5) as session:
        session.undo(*(each.action for each in session.journal.standings()))
    assert {path.name: path.read_text() for path in host.root.iterdir()} == {"a.txt": "first\n"}


def test_a_hook_that_the_host_has_ended_does_not_begin_a_tool_use(host: Host, monkeypatch: pytest.MonkeyPatch):
    use = json.dumps(given("PreToolUse", "Bash", command="x")).encode()
    host.fire(given("SessionStart"))
    monkeypatch.chdir(host.folder)
    with socket.socket(socket.AF_UNIX) as busy:
        busy.connect("socket")  # the observer waits for what it sends
        with socket.socket(socket.AF_UNIX) as late:
            late.connect("socket")
            late.sendall(b"before\n" + use)
        (host.root / "a.txt").write_text("by the tool")
    told = client.exchange(str(host.folder), "after", use)
    assert told == b"1autoclave: not all covered: no begin of this use of 'Bash' is known\n"
    with open_session(host.root, wait_s=5) as session:
        session.undo(*(each.action for each in session.journal.standings()))
    assert (host.root / "a.txt").read_text() == "first\n"


@pytest.mark.parametrize("program", CLIENTS.values(), ids=CLIENTS)
def test_the_fallback_gets_the_whole_input_when_the_observer_dies_while_it_reads(tmp_path: Path, program: list[str]):
    if not Path(program[0]).exists():
        pytest.skip("the hook is not compiled here")

    def die() -> None:
        link, _ = listener.accept()
        link.recv(10)
        link.close()

    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(tmp_path):
        listener.bind("socket")
        listener.listen()
        with ThreadPoolExecutor() as pool:
            pool.submit(die)
            command = [*program, str(tmp_path), "before", "/bin/sh", "-c", "wc -c"]
            ended = subprocess.run(command, input=b"x" * 3_000_000, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"3000000\n")


def test_the_observer_ends_when_nothing_happens(host: Host):
    resident.serve(host.root, idle_s=0.05)
    assert not (host.folder / "socket").exists()


@pytest.mark.parametrize(
    ("what", "about"),
    [
        ({"tool_input": {"command": "make"}}, "make"),
        ({"tool_input": {"command": ["sh", "-c", "make"]}}, "sh -c make"),  # Codex
        ({"tool_input": {"file_path": "/a", "content": "x" * 9999}}, "/a"),
        ({"tool_input": {"other": 1}}, '{"other": 1}'),
        ({"tool_input": {"command": "x" * 9999}}, "x" * 300),
        ({"tool_input": "free text"}, "free text"),
        ({}, ""),
    ],
)
def test_the_input_of_a_tool_is_told_in_a_line(what: dict[str, Any], about: str):
    assert use_from(what).about == about
