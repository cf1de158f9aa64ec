"""A model proposes by functions or by a program; it is told what became of it, and never sees more than it may."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import EngineFault, HostError, InputError
from autoclave.runtime.files.operations import OPERATIONS
from autoclave.runtime.proposals import (
    Answer,
    Call,
    Refused,
    chat_at,
    converse,
    converse_by_program,
    function_definitions,
    operation_of,
    program_in,
)
from tests.evaluation.chat_server import ChatServer


@dataclass(slots=True)
class Recorded:
    """Answers in place of a model, in their order."""

    answers: list[Answer] = field(default_factory=list[Answer])

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Answer:
        return self.answers.pop(0) if self.answers else Answer()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "done")
    yield server
    server.close()


def calling(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A choice of a model that calls functions."""
    told = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for n, (name, given) in enumerate(calls)
    ]
    return {"message": {"role": "assistant", "content": None, "tool_calls": told}, "finish_reason": "tool_calls"}


def driven(turns, *became: str | Refused) -> tuple[list[dict[str, Any]], str]:
    """What was proposed when these answers are given, and the last words."""
    proposed: list[dict[str, Any]] = []
    answers = iter(became)
    try:
        proposed.append(next(turns))
        while True:
            proposed.append(turns.send(next(answers)))
    except StopIteration as stop:
        return proposed, stop.value


def test_a_server_proposes_by_functions_and_is_told(server: ChatServer):
    server.trouble = [
        calling(("write", {"path": "a.txt", "content": "x"}), ("delete", {"path": "b"})),
        calling(("move", {"path": "a.txt", "to": "c.txt"})),
    ]
    chat = chat_at(server.url, "m", "the-key")
    turns = converse(chat, "tidy up", "a.txt (1 bytes)", OPERATIONS)
    proposed, last = driven(turns, "done", Refused("b: nothing there"), "")
    assert [each["do"] for each in proposed] == ["write", "delete", "move"]
    assert last == "done"
    assert server.keys[0] == "Bearer the-key"
    first, second, _ = server.bodies
    assert {each["function"]["name"] for each in first["tools"]} == set(OPERATIONS)
    assert "tidy up" in first["messages"][1]["content"]
    assert "a.txt (1 bytes)" in first["messages"][1]["content"]
    results = [each["content"] for each in second["messages"] if each["role"] == "tool"]
    assert results == ["done", "refused: b: nothing there"]
    assert server.bodies[2]["messages"][-1]["content"] == "done"


def test_a_library_that_is_missing_is_told_with_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(HostError, match=r"need a library. Fix: pip install .*\[runtime\]"):
        chat_at("http://127.0.0.1:1", "m", "")


def test_calls_that_are_none_are_told_to_the_model_and_not_acted_on(server: ChatServer):
    bad = [("nuke", {}), ("write", {}), ("write", {"path": "a", "mode": "x"}), ("delete", {"path": "a", "do": "write"})]
    server.trouble = [calling(*bad)]
    proposed, _ = driven(converse(chat_at(server.url, "m", ""), "t", "", OPERATIONS))
    assert proposed == []
    results = [each["content"] for each in server.bodies[1]["messages"] if each["role"] == "tool"]
    assert all(each.startswith("refused: ") for each in results)
    assert "nuke" in results[0]
    server.trouble = [calling(*bad), calling(*bad)]
    with pytest.raises(InputError, match="6 calls that are none"):
        driven(converse(chat_at(server.url, "m", ""), "t", "", OPERATIONS))


def test_a_model_that_never_ends_is_ended():
    chat = Recorded([Answer(calls=(Call("1", "make_folder", '{"path": "a"}'),)) for _ in range(9)])
    with pytest.raises(InputError, match="after 3 turns"):
        driven(converse(chat, "t", "", OPERATIONS, most_turns=3), *["done"] * 9)


def test_trouble_of_the_server_is_none_of_the_model(server: ChatServer):
    server.trouble = ["empty"]
    with pytest.raises(EngineFault, match="no choice"):
        driven(converse(chat_at(server.url, "m", "k"), "t", "", OPERATIONS))
    with pytest.raises(InputError, match="404"):
        driven(converse(chat_at(server.url, "other", "k"), "t", "", OPERATIONS))
    with pytest.raises(EngineFault):
        driven(converse(chat_at("http://127.0.0.1:1/v1", "m", "k"), "t", "", OPERATIONS))
    server.trouble = [401, 401, 401]
    with pytest.raises(InputError, match="401"):
        driven(converse(chat_at(server.url, "m", "secret-key"), "t", "", OPERATIONS))


def test_functions_are_described_by_the_operations():
    for function in function_definitions(OPERATIONS):
        parameters = function["function"]["parameters"]
        assert "do" not in parameters["properties"]
        assert parameters["additionalProperties"] is False
        assert function["function"]["description"]
    with pytest.raises(InputError, match="no JSON"):
        operation_of(Call("1", "write", "{"), OPERATIONS)
    with pytest.raises(InputError, match=r"number 0[.]12345678901234567891 would be rounded"):
        operation_of(Call("1", "delete", '{"path": 0.12345678901234567891}'), OPERATIONS)
    assert operation_of(Call("1", "delete", '{"path": "a"}'), OPERATIONS) == {"do": "delete", "path": "a"}


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"path": ' + "[" * 300 + "]" * 300 + "}", '{"mode": NaN}', "9" * 5000]
)
def test_arguments_that_no_library_of_ours_takes_are_refused(arguments: str):
    with pytest.raises(InputError, match="the arguments are no JSON"):
        operation_of(Call("1", "write", arguments), OPERATIONS)


def test_a_program_is_taken_from_the_one_fence():
    assert program_in("So:\n```python\nprint(1)\n```\nok") == {"do": "python", "source": "print(1)\n"}
    assert program_in("```sh\nls\n```") == {"do": "run", "command": ["sh", "-ec", "ls\n"]}
    for text in ("print(1)", "```\na\n```\n```\nb\n```", "```rust\nx\n```"):
        with pytest.raises(InputError, match="program"):
            program_in(text)


def test_a_model_that_writes_programs_may_try_again():
    texts = ["none", "```python\n1/0\n```", "```python\nopen('a', 'w')\n```"]
    chat = Recorded([Answer(text) for text in texts])
    proposed, last = driven(converse_by_program(chat, "t", "", secrets=["slack"]), Refused("exited with 1"), "")
    assert [each["source"] for each in proposed] == ["1/0\n", "open('a', 'w')\n"]
    assert proposed[0]["secrets"] == ["slack"]
    assert last == texts[-1]
    with pytest.raises(InputError, match="none of 2 programs"):
        driven(converse_by_program(Recorded(), "t", "", most_tries=2))


def test_the_command_acts_by_a_model_records_it_and_replays_it(autoclave_cli, server: ChatServer, tmp_path: Path):
    """A prompt without personal data, a denial without its hint, what was done, and the same again from a file."""
    act, folder = autoclave_cli, tmp_path / "project"
    folder.mkdir()
    assert act("grant", "files/notes/**").returncode == 0
    note = {"path": "notes/<EMAIL_1>.txt", "content": "hello <EMAIL_1>"}
    server.trouble = [
        calling(("write", {"path": "secret.txt", "content": ""})),
        calling(("make_folder", {"path": "notes"}), ("write", note)),
    ]
    words = ("--prompt", "note for ann@example.com", "--endpoint", server.url, "--model", "m")
    done = act("run", *words, "--hide-personal-data", "--record", "acts.jsonl")
    assert done.returncode == 0, done.stderr
    assert (folder / "notes/ann@example.com.txt").read_text() == "hello ann@example.com"
    assert "ann@" not in json.dumps(server.bodies)
    denied = server.bodies[1]["messages"][-1]["content"]
    assert denied.startswith("refused: ")
    assert "grant" not in denied.replace("granted", "")
    assert len((tmp_path / "acts.jsonl").read_text().splitlines()) == 2
    action = done.stdout.split()[0]
    assert act("undo", action, "--dependents").returncode == 0
    assert not (folder / "notes").exists()
    assert act("run", "acts.jsonl").returncode == 0
    assert (folder / "notes/ann@example.com.txt").read_text() == "hello ann@example.com"


@pytest.fixture
def autoclave_cli(tmp_path: Path):
    import os
    import subprocess
    import sys

    def act(*words: str):
        command = [sys.executable, "-m", "autoclave", "act", *words, "--root", "project"]
        environment = {**os.environ, "OPENAI_API_KEY": "k"}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return act
