"""`autoclave episode run`: a policy answers over HTTP or from a folder, in turns; a stored episode is graded again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autoclave.cli.main import cli
from autoclave.core import EngineFault, Fault, IncompleteError, InputError, Verdict
from autoclave.core.json import to_plain
from autoclave.models import save_model
from autoclave_environments.differing_input import DifferingInputProblems
from autoclave_environments.settings import DifferingInputProblemsConfig
from tests.evaluation.chat_server import ChatServer
from tests.training_parts import tiny_policy

from .conftest import ADD

pytestmark = pytest.mark.timeout(120)

WRONG, RIGHT = "I guess.\n```python\nprint(8)\n```", "```python\nprint(sum(map(int, input().split())))\n```"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    server = ChatServer(lambda body: RIGHT if "Expected" in body["messages"][-1]["content"] else WRONG)
    yield server
    server.close()


@pytest.fixture
def problems(write_lines: Callable[..., Path]) -> Path:
    return write_lines("problems.jsonl", ADD, ADD | {"id": "other"})


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["episode", "run", *map(str, words), "judge.workers=1"])


def test_an_episode_is_printed_and_stored_and_graded_again_by_other_tests(
    server: ChatServer, problems: Path, tmp_path: Path, write_lines: Callable[..., Path]
):
    item, turns = f"{problems}#add", "task.turns=3"
    played = run(item, turns, "--policy", server.url, "--out", tmp_path / "episode.json")
    assert played.exit_code == 0, played.exception
    lines = played.output.splitlines()
    places = [lines.index(line) for line in ("turn 1:", "  print(8)", "observed:", "  Expected:", "turn 2:")]
    assert places == sorted(places)
    assert lines[-1] == "reward 1.0: accepted, tests passed 1, level sealed"
    roles = [message["role"] for message in server.bodies[1]["messages"]]
    assert roles[-3:] == ["user", "assistant", "user"]
    again = run(item, turns, "--replay", tmp_path / "episode.json", "--json")
    record = json.loads(again.output)
    assert (again.exit_code, record["reward"], record["turns"][0]["response"], len(server.bodies)) == (0, 1, WRONG, 2)
    tests = {"kind": "stdin", "cases": [{"input": "3 4\n", "output": "8\n"}]}
    other = write_lines("changed.jsonl", ADD | {"tests": tests})
    assert "reward 0.0: wrong answer" in run(f"{other}#add", turns, "--replay", tmp_path / "episode.json").output
    with pytest.raises(InputError, match=r"no episode of 'other' .*'add'"):
        raise run(f"{problems}#other", "--replay", tmp_path / "episode.json").exception or AssertionError


def test_tools_act_in_a_sealed_workspace(server: ChatServer):
    problem = DifferingInputProblems(DifferingInputProblemsConfig(train=1, heldout=1)).heldout[0]
    code = "import a, b\nprint([x for x in range(100) if a.f(x) != b.g(x)])\nkept = open('notes', 'w').write('found')"
    call = {"id": "one", "type": "function", "function": {"name": "python", "arguments": json.dumps({"code": code})}}
    server.trouble = [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]
    server.say = lambda body: body["messages"][-1]["content"]
    name = "differing_input"
    made = [f"task.name={name}", f"problems.name={name}", "problems.train=1", "problems.heldout=1"]
    played = run(problem.id, *made, "--policy", server.url)
    assert played.exit_code == 0, played.exception
    assert server.bodies[1]["messages"][-1]["tool_call_id"] == "one"
    shown = {"  call python", "      import a, b"}
    assert shown <= {*played.output.splitlines()}
    assert played.output.splitlines()[-1] == "reward 1.0: accepted, tests passed 1, level sealed"


def test_a_model_in_a_folder_plays_too(problems: Path, tmp_path: Path):
    save_model(tiny_policy(), tmp_path / "model")
    played = run(
        f"{problems}#add", "task.turns=2", "sampler.max_new_tokens=4", "--policy", tmp_path / "model", "--json"
    )
    assert played.exit_code == 0, played.exception
    record = json.loads(played.stdout.splitlines()[-1])
    assert (record["reason"], record["ended_by"], record["tokens"]) == ("bad_format", "context", 4)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["problems.jsonl#ad"], InputError, "no such problem; did you mean add"),
        (["gone.jsonl#add"], InputError, "problem file gone.jsonl: no such file"),
        (["problems.jsonl"], InputError, "no such problem; known are add, other. Fix: FILE#ID"),
        (["no-such-id", "problems.train=9", "problems.heldout=200"], InputError, '"no-such-id": no such problem'),
        (["problems.jsonl#add", "endpoint.modle=m"], InputError, "modle"),
        (["problems.jsonl#add", "endpoint.retries=0"], EngineFault, "http://127.0.0.1:9.* does not answer"),
    ],
)
def test_bad_input_is_named(
    words: list[str], error: type[Exception], message: str, problems: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(problems.parent)
    with pytest.raises(error, match=message):
        raise run(*words, "--policy", "http://127.0.0.1:9/v1").exception or AssertionError


def test_an_episode_that_a_fault_ended_has_no_verdict_when_graded_again(
    server: ChatServer, problems: Path, tmp_path: Path
):
    item, stored = f"{problems}#add", tmp_path / "episode.json"
    run(item, "task.turns=3", "--policy", server.url, "--out", stored)
    fault = to_plain(Verdict.none(Fault("environment", "a workspace has failed")))
    stored.write_text(json.dumps(json.loads(stored.read_text()) | {"reward": None, "verdict": fault}))
    again = run(item, "task.turns=3", "--replay", stored)
    assert (again.exit_code, isinstance(again.exception, IncompleteError)) == (1, True)


@pytest.mark.parametrize("words", [[], ["--policy", "http://127.0.0.1:9", "--replay", "episode.json"]])
def test_either_a_policy_or_a_stored_episode_is_given(words: list[str]):
    assert "give either --policy or --replay" in run("problems.jsonl#add", *words).output


@pytest.mark.parametrize("content", ["", "[]", '{"format": "other"}', "\x00"])
def test_a_file_that_is_no_episode_is_refused(content: str, problems: Path, tmp_path: Path):
    (tmp_path / "episode.json").write_text(content)
    found: Any = run(f"{problems}#add", "--replay", tmp_path / "episode.json").exception
    assert re.search(r"--replay .*episode.json: no episode of 'add' .* Fix: a file of --out", str(found))


def test_the_commands_of_the_page_run(server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = Path(__file__).parents[2]
    (tmp_path / "examples").symlink_to(root / "examples")
    monkeypatch.chdir(tmp_path)
    page = (root / "docs/how-to/episodes.md").read_text()
    commands = re.findall(r"^    autoclave episode run (.*#add .*)$", page, re.MULTILINE)
    for command in commands:
        played = run(*command.replace("http://127.0.0.1:8000/v1", server.url).split())
        assert played.exit_code == 0, played.exception
        assert all(line in page for line in played.output.splitlines() if "tokens" not in line)
    assert len(commands) == 2
