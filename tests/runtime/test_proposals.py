"""A model proposes by functions or by a program; it is told what became of it, and never sees more than it may."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import EngineFault, InputError
from autoclave.runtime import proposals
from autoclave.runtime.files.operations import OPERATIONS
from autoclave.runtime.proposals import (
    Answer,
    Call,
    Chat,
    Refused,
    chat_at,
    converse,
    converse_by_program,
    function_definitions,
    operation_of,
    program_in,
)
from tests.evaluation.chat_server import ChatServer


def recorded(*texts: str, calls: tuple[Call, ...] = ()) -> Chat:
    """A model that gives these answers in their order, and then none."""
    answers = [Answer(text, calls) for text in texts]
    return lambda messages, tools: answers.pop(0) if answers else Answer()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: "done")
    yield server
    server.close()


@pytest.fixture
def act(forked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """act(words...): the command on the folder `project`."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return lambda *words: forked("act", *words, "--root", "project")


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


def test_calls_that_are_none_are_told_to_the_model_and_not_acted_on(server: ChatServer):
    bad = [("nuke", {}), ("write", {}), ("write", {"path": "a", "mode": "x"}), ("delete", {"path": "a", "do": "write"})]
    server.trouble = [calling(*bad)]
    proposed, _ = driven(converse(chat_at(server.url, "m", ""), "t", "", OPERATIONS))
    assert proposed == []
    results = [each["content"] for each in server.bodies[1]["messages"] if each["role"] == "tool"]
    assert all(each.startswith("refused: ") for each in results)
    assert "nuke" in results[0]
    server.trouble = [calling(*bad), calling(*bad)]
    with pytest.raises(InputError, match="6 invalid calls"):
        driven(converse(chat_at(server.url, "m", ""), "t", "", OPERATIONS))


def test_a_model_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proposals, "_MOST_TURNS", 3)
    chat = recorded(*[""] * 9, calls=(Call("1", "make_folder", '{"path": "a"}'),))
    with pytest.raises(InputError, match="after 3 turns"):
        driven(converse(chat, "t", "", OPERATIONS), *["done"] * 9)


def test_trouble_of_the_server_is_none_of_the_model(server: ChatServer):
    server.trouble = ["empty"]
    with pytest.raises(EngineFault, match="no choice"):
        driven(converse(chat_at(server.url, "m", "k"), "t", "", OPERATIONS))
    with pytest.raises(InputError, match="404"):
        driven(converse(chat_at(server.url, "other", "k"), "t", "", OPERATIONS))
    with pytest.raises(EngineFault):
        driven(converse(chat_at("http://127.0.0.1:1/v1", "m", "k"), "t", "", OPERATIONS))
    server.trouble = [401]
    with pytest.raises(InputError, match="401"):
        driven(converse(chat_at(server.url, "m", "secret-key"), "t", "", OPERATIONS))


def _answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> ThreadingHTTPServer:
    handler = type("Handler", (BaseHTTPRequestHandler,), {"do_POST": answer, "log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def _says(handler: BaseHTTPRequestHandler, kind: str, content: bytes) -> None:
    handler.rfile.read(int(handler.headers["Content-Length"]))  # what is unread resets the connection when it is closed
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", f"{len(content)}")
    handler.end_headers()
    handler.wfile.write(content)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda handler: _says(handler, "text/html", b"<html>It works</html>"), "no choice"),
        (lambda handler: _says(handler, "application/json", b"<html>It works</html>"), "no choice"),
        (lambda handler: _says(handler, "application/json", b"[" * 100_000), "no choice"),
        (lambda handler: _says(handler, "application/json", b'{"choices": [{"message": 7}]}'), "no choice"),
        (lambda handler: _says(handler, "application/json", b" " * (5 << 20)), "larger than 4194304 bytes"),
        (lambda handler: time.sleep(2), "within 1.0 s"),
    ],
    ids=range(6),
)
def test_nonsense_of_a_server_is_one_error_in_bounded_time(answer: Callable[[Any], None], why: str):
    server, began = _answering(answer), time.monotonic()
    with pytest.raises(EngineFault, match=why) as error:
        chat_at(f"http://127.0.0.1:{server.server_port}/v1", "m", "the-key", timeout_s=1.0)([], [])
    assert "\n" not in str(error.value)
    assert time.monotonic() - began < 20
    server.shutdown()
    server.server_close()


def test_arguments_as_an_object_and_lone_surrogates_become_text():
    call = b'{"id": "\\ud800", "type": "function", "function": {"name": "read\\udfff", "arguments": {"path": "a"}}}'
    content = b'{"choices": [{"message": {"content": "x\\ud800", "tool_calls": [' + call + b"]}}]}"
    server = _answering(lambda handler: _says(handler, "application/json", content))
    answer = chat_at(f"http://127.0.0.1:{server.server_port}/v1", "m", "")([], [])
    assert answer == Answer("x\\ud800", (Call("\\ud800", "read\\udfff", '{"path": "a"}'),))
    server.shutdown()
    server.server_close()


def test_functions_are_described_by_the_operations():
    for function in function_definitions(OPERATIONS):
        parameters = function["function"]["parameters"]
        assert "do" not in parameters["properties"]
        assert parameters["additionalProperties"] is False
        assert function["function"]["description"]
    with pytest.raises(InputError, match="not usable JSON"):
        operation_of(Call("1", "write", "{"), OPERATIONS)
    with pytest.raises(InputError, match=r"number 0[.]12345678901234567891 would be rounded"):
        operation_of(Call("1", "delete", '{"path": 0.12345678901234567891}'), OPERATIONS)
    assert operation_of(Call("1", "delete", '{"path": "a"}'), OPERATIONS) == {"do": "delete", "path": "a"}


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"path": ' + "[" * 300 + "]" * 300 + "}", '{"mode": NaN}', "9" * 5000]
)
def test_arguments_that_no_library_of_ours_takes_are_refused(arguments: str):
    with pytest.raises(InputError, match="the arguments are not usable JSON"):
        operation_of(Call("1", "write", arguments), OPERATIONS)


def test_a_program_is_taken_from_the_one_fence():
    assert program_in("So:\n```python\nprint(1)\n```\nok") == {"do": "python", "source": "print(1)\n"}
    assert program_in("```sh\nls\n```") == {"do": "run", "command": ["sh", "-ec", "ls\n"]}
    for text in ("print(1)", "```\na\n```\n```\nb\n```", "```rust\nx\n```"):
        with pytest.raises(InputError, match="program"):
            program_in(text)


def test_functions_have_an_undo_only_where_it_is_asked_for():
    def with_undo(definitions: list[dict[str, Any]]) -> set[str]:
        functions = [each["function"] for each in definitions]
        return {each["name"] for each in functions if "undo" in each["parameters"]["properties"]}

    assert with_undo(function_definitions(OPERATIONS)) == set()
    assert with_undo(function_definitions(OPERATIONS, with_undo=True)) == {"run", "python"}


def test_a_second_fence_undoes_the_first_where_it_is_asked_for():
    python, shell = "```python\na\n```\n```\nb\n```", "```sh\nmv a b\n```\n```sh\nmv b a\n```"
    assert program_in(python, with_undo=True) == {"do": "python", "source": "a\n", "undo": "b\n"}
    assert program_in(shell, with_undo=True)["undo"] == ["sh", "-ec", "mv b a\n"]
    assert "undo" not in program_in("```sh\nls\n```", with_undo=True)
    with pytest.raises(InputError, match="3 fenced programs; it must have one, and one that undoes it"):
        program_in(python + shell[:13] + "```", with_undo=True)


def test_a_model_that_writes_programs_may_try_again():
    texts = ["none", "```python\n1/0\n```", "```python\nopen('a', 'w')\n```"]
    proposed, last = driven(
        converse_by_program(recorded(*texts), "t", "", secrets=["slack"]), Refused("exited with 1"), ""
    )
    assert [each["source"] for each in proposed] == ["1/0\n", "open('a', 'w')\n"]
    assert proposed[0]["secrets"] == ["slack"]
    assert last == texts[-1]
    with pytest.raises(InputError, match="none of 5 programs"):
        driven(converse_by_program(recorded(), "t", ""))


def test_the_command_acts_by_a_model_records_it_and_replays_it(act, server: ChatServer, tmp_path: Path):
    """A prompt without personal data, a denial without its hint, what was done, and the same again from a file."""
    act, folder = act, tmp_path / "project"
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


def test_an_undo_of_a_model_is_tested_and_shown_and_what_was_replaced_is_kept(act, server: ChatServer, tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("kept")
    assert act("grant", "files/**", "programs/**").returncode == 0
    server.trouble = [
        calling(
            ("run", {"command": ["mv", "a.txt", "b.txt"], "undo": ["mv", "b.txt", "a.txt"]}),
            ("run", {"command": ["sh", "-c", "echo gone > b.txt"], "undo": ["true"]}),
        )
    ]
    told = act("run", "--prompt", "p", "--endpoint", server.url, "--model", "m", "--undo", "model")
    assert told.returncode == 0, told.stderr
    assert "undo: mv b.txt a.txt" in told.stdout
    assert "its own undo was tested, and restores the tree" in told.stdout
    assert "warning: its own undo is ignored" in told.stdout
    assert "`undo`" in server.bodies[0]["messages"][0]["content"]
    results = [each["content"] for each in server.bodies[-1]["messages"] if each["role"] == "tool"]
    assert "restores the tree" in results[0]
    assert "is ignored" in results[1]
    assert act("undo", "--all").returncode == 0
    assert (folder / "a.txt").read_text() == "kept"
    assert [each.name for each in folder.iterdir()] == ["a.txt"]


def test_words_of_a_model_do_nothing_to_a_terminal(act, server: ChatServer, tmp_path: Path):
    (tmp_path / "project").mkdir()
    server.trouble = [
        {"message": {"role": "assistant", "content": "\x1b]52;c;eA==\x07 \ud800"}, "finish_reason": "stop"}
    ]
    told = act("run", "--prompt", "p", "--endpoint", server.url, "--model", "m")
    assert told.returncode == 0, told.stderr
    assert told.stderr.startswith("model: \\x1b]52;c;eA==\\x07")


def test_a_model_is_sent_guarantee_changes_and_output(act, server: ChatServer, tmp_path: Path):
    (tmp_path / "project").mkdir()
    assert act("grant", "files/**", "programs/**").returncode == 0
    run = {"command": ["sh", "-c", "seq 5000; echo last; echo err >&2; echo x > made; exit $(test -e a.txt; echo $?)"]}
    server.trouble = [
        calling(("run", run)),
        calling(("write", {"path": "a.txt", "content": "x"}), ("read", {"path": "a.txt"})),
        calling(("run", run)),
    ]
    told = act("run", "--prompt", "p", "--endpoint", server.url, "--model", "m")
    assert told.returncode == 0, told.stderr
    failed, written, read, done = [each["content"] for each in server.bodies[-1]["messages"] if each["role"] == "tool"]
    reason, _, output = failed.partition("\n")
    assert reason == "refused: run: exited with 1: err; nothing was done"
    assert json.loads(output)["exit_code"] == 1
    assert json.loads(output)["stdout"].endswith("\n5000\nlast\n")
    assert json.loads(output)["changes"] == ["create 'made'"]
    assert json.loads(written) == {"guarantee": "exact", "changes": ["create 'a.txt'"]}
    assert json.loads(read)["content"] == "x"
    assert {name: json.loads(done)[name] for name in ("guarantee", "changes", "exit_code", "stderr")} == {
        "guarantee": "exact",
        "changes": ["create 'made'"],
        "exit_code": 0,
        "stderr": "err\n",
    }
