"""Every benchmark end to end: right and wrong responses, a policy, and the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose.benchmark import definition_names, definition_of, evaluate_benchmark
from autoclave.config import BenchmarkConfig, Override, load
from autoclave.core import ConfigError, EngineFault, InputError
from autoclave.evaluation.benchmark_result import load_result
from autoclave.models import save_model
from autoclave_testing.engines import build_policy
from tests.evaluation.chat_server import ChatServer

pytestmark = pytest.mark.timeout(180)

ADD = "print(sum(map(int, input().split())))"
COLUMNS = {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}
RECORDS = [{"input": "1 2\n", "output": "3\n"}, {"input": "4 5\n", "output": "9\n"}]
FUNCTION = "def add(a, b):\n    return a + b\n"


def fenced(code: str) -> str:
    return f"Here it is.\n\n```python\n{code}\n```"


HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": "import math\n\ndef add(a, b):\n    '''Add.'''\n",
    "entry_point": "add",
    "canonical_solution": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}
HUMANEVAL_PLUS = {name: value for name, value in HUMANEVAL.items() if name != "test"} | {
    "base_input": [[1, 2]],
    "plus_input": [[3, 4]],
    "atol": 0,
}
MBPP = {
    "task_id": 11,
    "text": "Add two numbers.",
    "code": FUNCTION,
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3"],
    "challenge_test_list": [],
}
MBPP_PLUS = {
    "task_id": "Mbpp/11",
    "prompt": '"""\nAdd two numbers.\nassert add(1, 2) == 3\n"""\n',
    "entry_point": "add",
    "canonical_solution": FUNCTION,
    "base_input": [[1, 2]],
    "plus_input": [[3, 4]],
    "atol": 0,
}
LEETCODE = {
    "task_id": "add",
    "prompt": "import math\n",
    "completion": "class Solution: ...",
    "entry_point": "Solution().add",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    "query": "",
    "problem_description": "Add.",
    "difficulty": "Easy",
    "starter_code": "class Solution:",
}
LCB = {
    "question_title": "A. Add",
    "question_content": "Add.",
    "platform": "codeforces",
    "question_id": "1_A",
    "contest_date": "2024-09-21T00:00:00",
    "difficulty": "easy",
    "starter_code": "",
    "public_test_cases": json.dumps([RECORDS[0] | {"testtype": "stdin"}]),
    "private_test_cases": json.dumps([RECORDS[1] | {"testtype": "stdin"}]),
    "metadata": "{}",
}
LIVEBENCH = {
    "question_id": "q1",
    "task": "coding_completion",
    "partial_solution": "a, b = map(int, input().split())",
    "original_json": {name: LCB[name] for name in ("question_content", "platform", "difficulty", "metadata")},
    "public_test_cases": LCB["public_test_cases"],
    "private_test_cases": LCB["private_test_cases"],
}
APPS = {
    "problem_id": 1,
    "question": "Add.",
    "solutions": json.dumps(["a, b = map(int, input().split())\nc = a + b\nprint(c)"]),
    "input_output": json.dumps(COLUMNS),
    "difficulty": "introductory",
}
CODE_CONTESTS = {
    "name": "1_A. Add",
    "description": "Add.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": ["4 5\n"], "output": ["9\n"]},
    "difficulty": 7,
    "source": 2,
}
CRUXEVAL = {"id": "sample_1", "code": "def f(x):\n    return x + [1]", "input": "[2]", "output": "[2, 1]"}
EXECUTION = {
    "question_id": "2",
    "id": "sample_2",
    "code": "def f(x):\n    return x",
    "input": "f(x = 3)",
    "output": "3",
}
TEST_OUTPUT = LCB | {
    "function_name": "add",
    "test_id": 1,
    "test": json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}]),
}
AIME = {"problem": "What is 200 + 4?", "answer": "204", "year": 2024, "aime_number": 1, "problem_number": 3}
MATH = {"problem": "Half?", "answer": "\\frac{1}{2}", "unique_id": "m/1", "subject": "Algebra", "level": 1}
CODEFORCES = {"cf_id": "1A", "problem": "Add.", "tests": RECORDS}
SUMMED = "a, b = map(int, input().split())\npair = [a, [b]]\nc = a + b\nprint(c)"
TRACED = APPS | {
    "solutions": json.dumps([SUMMED]),
    "input_output": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}),
}
TRACE = 'It reads and adds.\n{"final_output": "3", "variables": {"a": 1, "b": 2, "c": %s, "pair": %s}}'

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "humaneval": (HUMANEVAL, fenced(FUNCTION), fenced("def add(a, b): return a")),
    "humaneval_completion": (HUMANEVAL, "    return a + b\ndef other(", "    return a\n"),
    "humaneval_plus": (HUMANEVAL_PLUS, fenced(FUNCTION), fenced("def add(a, b): return 3")),
    "mbpp": (MBPP, fenced(FUNCTION), fenced("def sub(a, b): return 3")),
    "mbpp_plus": (MBPP_PLUS, fenced(FUNCTION), fenced("def add(a, b): return 3")),
    "leetcode": (
        LEETCODE,
        fenced("class Solution:\n    def add(self, a, b):\n        return a + b"),
        fenced("class Solution:\n    pass"),
    ),
    "apps": (APPS, fenced(ADD), fenced("print(3)")),
    "apps_share_of_tests": (APPS, fenced(ADD), fenced("print(0)")),
    "code_contests": (CODE_CONTESTS, fenced(ADD), "print(3)"),
    "livecodebench": (LCB, f"<think>```python\nprint(3)\n```</think>{fenced(ADD)}", f"<think>{fenced(ADD)}"),
    "livecodebench_execution": (EXECUTION, "[ANSWER]f(x = 3) == 3[/ANSWER]", "Answer: 4"),
    "livecodebench_test_output": (TEST_OUTPUT, "So\nassert add(1, 2) == 3", "3 or 4"),
    "cruxeval_output": (CRUXEVAL, "Answer: [2, 1]", "Answer: [1, 2]"),
    "cruxeval_input": (CRUXEVAL, "Answer: f([2])", "Answer: f(type('A', (), {'__add__': lambda s, o: [2, 1]})())"),
    "livebench_coding": (LIVEBENCH, fenced(ADD), fenced("print(3)")),
    "livebench_completion": (LIVEBENCH, fenced("print(a + b)"), fenced("print(a)")),
    "trace_inference": (TRACED, TRACE % (3, "[1, [2]]"), TRACE % (3, "[1, [3]]")),
    "aime": (AIME, "So \\boxed{204}.", "So \\boxed{205}."),
    "math": (MATH, "So \\boxed{0.5}.", "So \\boxed{0.25}."),
    "codeforces": (CODEFORCES, fenced(ADD), fenced("print(3)")),
}
"""Of each benchmark a row of its set, a right response to it, and a wrong one."""


def config_of(name: str, data: Path, **settings: Any) -> BenchmarkConfig:
    """The benchmark, on a file of ours."""
    changes = {"source.path": str(data), "source.hub": "", "source.release": "", "lazy_programs": False, **settings}
    overrides = [Override(path, value, "test") for path, value in changes.items()]
    return load(BenchmarkConfig, definition_of(name), overrides).config


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., Path]:
    """A file with these rows."""

    def write(*rows: dict[str, Any], name: str = "data.jsonl") -> Path:
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_model(build_policy(), folder)
    return folder


def test_every_benchmark_has_a_case():
    assert set(CASES) == set(definition_names())


def asked_id(config: BenchmarkConfig, data: Callable[..., Path]) -> str:
    """The id of the first question."""
    ids = data({"problem_id": "x", "response": "x"}, name="other.jsonl")
    with pytest.raises(InputError, match="such as") as complaint:
        evaluate_benchmark(config, str(ids))
    return str(complaint.value).partition("['")[2].partition("'")[0]


@pytest.mark.parametrize("name", CASES)
def test_right_and_wrong_responses_are_distinguished(name, data, tmp_path):
    row, right, wrong = CASES[name]
    path = data(row)
    config = config_of(name, path)
    id = asked_id(config, data)
    said = [{"problem_id": id, "response": text} for text in (right, wrong)]
    responses = data(*said, name="responses.jsonl")
    result = evaluate_benchmark(config, str(responses), out=tmp_path / "out")
    assert [sample.score for sample in result.samples] == [1.0, 0.0], result.samples
    assert result.to_metrics()["pass@1"] == 0.5
    assert load_result(tmp_path / "out") == result
    assert "</html>" in (tmp_path / "out/report.html").read_text()


EXECUTED = "def f(x, y, z=1):\n    total = x + y + z\n    parts = [total, x]\n    return parts[0]"
ANSWERED = '{"final_output": %s, "variables": {"x": 3, "y": 5, "z": 1, "total": 9, "parts": [9, 3]}}'


@pytest.mark.parametrize(
    ("layout", "given"),
    [("livecodebench_execution", "f(y = 5, x = 3)"), ("cruxeval", "3, 5")],
)
def test_output_prediction_sets_become_programs_of_trace_inference(layout, given, data):
    row = {"id": "one", "code": EXECUTED, "input": given, "output": "9"}
    config = config_of("trace_inference", data(row), **{"source.set": layout})
    id = asked_id(config, data)
    said = [{"problem_id": id, "response": ANSWERED % text} for text in ("9", "8")]
    result = evaluate_benchmark(config, str(data(*said, name="responses.jsonl")))
    assert [sample.score for sample in result.samples] == [1.0, 0.0], result.samples


@pytest.mark.parametrize(
    ("name", "code"),
    [("livecodebench", ADD), ("codeforces", ADD), ("humaneval", FUNCTION), ("mbpp", FUNCTION)],
)
def test_programs_may_import_numpy(name, code, data):
    row = CASES[name][0]
    responses = data(
        {"problem_id": row.get("task_id") or row.get("question_id") or "1A", "solution": f"import numpy\n{code}"},
        name="r.jsonl",
    )
    result = evaluate_benchmark(config_of(name, data(row)), str(responses))
    assert result.samples[0].is_right, result.samples


@pytest.mark.parametrize("name", CASES)
def test_a_policy_is_measured(name, data, policy, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path / "cache"))
    config = config_of(name, data(CASES[name][0]), samples=2, k=[1], temperature=1.0, max_new_tokens=8)
    result = evaluate_benchmark(config, str(policy))
    assert len(result.samples) == 2
    assert all(sample.score is not None for sample in result.samples)
    again = evaluate_benchmark(config, str(policy))
    assert again.samples == result.samples
    assert again.account["from_cache"] == 2


def test_a_custom_benchmark_is_a_file(data, tmp_path, autoclave):
    path = data(MBPP)
    own = tmp_path / "own.yaml"
    own.write_text(
        "name: mine\nsource: {set: mbpp, path: data.jsonl}\n"
        "prompt: 'Solve this: {statement} Name it {entry_point}.'\nsystem: ''\nk: [1]\n"
    )
    server = ChatServer(lambda body: fenced(FUNCTION) if "Name it add." in body["messages"][-1]["content"] else "")
    ended = autoclave("evaluate", server.url, "--benchmark", "own.yaml", "--json", env=_environment(tmp_path))
    server.close()
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["pass@1"] == 1.0
    assert path.exists()


def test_killed_again_and_again_nothing_is_sampled_twice(data, tmp_path):
    """Requests that were under way at a kill may be made again; none that was answered and kept."""
    rows = [MBPP | {"task_id": number} for number in range(11, 31)]
    statements = [row | {"text": f"Add two numbers, variant {row['task_id']}."} for row in rows]
    path = data(*statements)
    server = ChatServer(lambda body: fenced(FUNCTION if body["seed"] % 2 else "def add(a, b): return 0"))
    command = [sys.executable, "-m", "autoclave", "evaluate", server.url, "--benchmark", "mbpp", "--data", str(path)]
    command += ["samples=2", "temperature=0.7", "endpoint.concurrency=2", "--out", "out"]
    expected = subprocess.run(
        command,
        cwd=tmp_path,
        env=_environment(tmp_path / "other"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert expected.returncode == 0, expected.stderr
    whole = load_result(tmp_path / "out")
    server.answered.clear()
    server.pause_s = 0.1
    kills = 0
    while True:
        before = sum(server.answered.values())
        process = subprocess.Popen(
            command, cwd=tmp_path, env=_environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and sum(server.answered.values()) < before + 9:
            time.sleep(0.01)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    server.close()
    assert process.returncode == 0
    assert kills >= 2
    again = load_result(tmp_path / "out")
    assert again.samples == whole.samples
    assert len(server.answered) == 40
    assert sum(server.answered.values()) - 40 <= 2 * kills  # at most those under way at each kill


def test_the_key_of_a_server_is_a_setting_or_in_the_environment(data, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    monkeypatch.setenv("THE_KEY", "of the environment")
    server = ChatServer(lambda body: fenced(FUNCTION))
    path = data(MBPP)
    evaluate_benchmark(config_of("mbpp", path), server.url, key=lambda: "given", fresh=True)
    evaluate_benchmark(config_of("mbpp", path, **{"endpoint.api_key_variable": "THE_KEY"}), server.url, fresh=True)
    with pytest.raises(ConfigError, match="NO_KEY"):
        evaluate_benchmark(config_of("mbpp", path, **{"endpoint.api_key_variable": "NO_KEY"}), server.url)
    server.close()
    assert server.keys == ["Bearer given", "Bearer of the environment"]
    assert not any(b"of the environment" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_two_results_are_compared(data, tmp_path, autoclave):
    data(MBPP, MBPP | {"task_id": 12})
    for name, texts in (("a", (FUNCTION, "x = 1")), ("b", (FUNCTION, FUNCTION))):
        lines = [{"task_id": 11 + place, "solution": text} for place, text in enumerate(texts)]
        data(*lines, name=f"{name}.jsonl")
        ended = autoclave("evaluate", f"{name}.jsonl", "--benchmark", "mbpp", "--data", "data.jsonl", "--out", name)
        assert ended.returncode == 0, ended.stderr
    ended = autoclave("evaluate", "compare", "a", "b", "--json", "--out", "page.html")
    found = json.loads(ended.stdout)
    assert (found["problems"], found["difference"]) == (2, 0.5)
    assert [each["id"] for each in found["won"]] == ["mbpp/12"]
    page = (tmp_path / "page.html").read_text()
    assert "x = 1" in page
    assert "return a + b" in page


def test_export_and_import_keep_the_figures(data, autoclave):
    data(LCB)
    data({"question_id": "1_A", "output_list": [fenced(ADD), "no"]}, name="said.jsonl")
    ended = autoclave("evaluate", "said.jsonl", "--benchmark", "livecodebench", "--data", "data.jsonl", "--out", "r")
    assert ended.returncode == 0, ended.stderr
    autoclave("evaluate", "export", "r", "--format", "livecodebench", "--out", "eval_all.json")
    ended = autoclave("evaluate", "import", "eval_all.json", "--out", "i", "--json")
    assert json.loads(ended.stdout)["pass@1"] == 0.5
    ended = autoclave("evaluate", "eval_all.json", "--benchmark", "livecodebench", "--data", "data.jsonl", "--json")
    assert json.loads(ended.stdout)["pass@1"] == 0.5


def test_a_rating_needs_standings(data, tmp_path, autoclave):
    data(CODEFORCES)
    data({"problem_id": "1A", "response": "no"}, {"problem_id": "1A", "response": fenced(ADD)}, name="said.jsonl")
    people = [{"points": 500, "penalty": 0, "old_rating": 2000}, {"points": 100, "penalty": 0, "old_rating": 1000}]
    data({"contest": 1, "problems": {"A": 500}, "rows": people}, name="rounds.jsonl")
    (tmp_path / "users.json").write_text('{"1000": 1, "1400": 1, "3000": 2}')
    ended = autoclave(
        *("evaluate", "said.jsonl", "--benchmark", "codeforces", "--data", "data.jsonl", "--json"),
        *("rating={standings: rounds.jsonl, histogram: users.json}", "--out", "r"),
    )
    assert ended.returncode == 0, ended.stderr
    rating = json.loads(ended.stdout)["rating"]
    assert rating["per_contest"][0]["score"]["points"] == 450
    assert rating["per_contest"][0]["rank"] == 2
    assert rating["percentile"] == 50


def test_problems_without_a_response_are_an_error_unless_they_may_be_left_out(data, autoclave):
    data(MBPP, MBPP | {"task_id": 12})
    data({"task_id": 11, "solution": FUNCTION}, name="said.jsonl")
    words = ("evaluate", "said.jsonl", "--benchmark", "mbpp", "--data", "data.jsonl", "--json")
    ended = autoclave(*words)
    assert ended.returncode == 2
    assert "has no response to 1 of 2 problems (mbpp/12)" in ended.stderr
    ended = autoclave(*words, "--partial")
    figures = json.loads(ended.stdout)
    assert (figures["unanswered"], figures["pass@1"]) == (1, 1.0)


def test_omitted_problems_are_reported(data, tmp_path):
    said: list[str] = []
    path = data(MBPP, MBPP | {"task_id": 12, "test_list": []})
    responses = data({"task_id": 11, "solution": FUNCTION}, name="said.jsonl")
    config = config_of("mbpp", path, samples=4, k=[1, 4], temperature=1.0, lazy_programs=True)
    result = evaluate_benchmark(config, str(responses), out=tmp_path / "out", say=said.append)
    assert "1 of 2 rows" in said[0]
    assert "no_function" in said[0]
    assert "1 of 1 problems accept a lazy program" in said[1]
    assert said[2] == "pass@k for k = [4] is left out: there are problems with 1 responses"
    assert list(result.notes) == said
    assert load_result(tmp_path / "out").lazy == {"mbpp/11": ["returns 3 (an assertion's)"]}
    assert result.to_metrics()["accept_lazy_programs"] == 1
    assert evaluate_benchmark(config_of("mbpp", path), str(responses)).lazy is None
    assert said[2] in (tmp_path / "out/report.html").read_text()


def test_pending_responses_are_kept_when_another_fails(data, monkeypatch, tmp_path):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    server = ChatServer(lambda body: fenced(FUNCTION))
    server.trouble, server.pause_s = ["empty"], 0.5
    rows = [MBPP | {"task_id": number, "text": f"Add, variant {number}."} for number in range(11, 15)]
    config = config_of("mbpp", data(*rows), **{"endpoint.concurrency": 4, "endpoint.retries": 0})
    with pytest.raises(EngineFault, match="no choice"):
        evaluate_benchmark(config, server.url)
    asked = len(server.bodies)
    server.pause_s = 0.0
    result = evaluate_benchmark(config, server.url)
    server.close()
    assert result.account["from_cache"] == asked - 1
    assert len(server.answered) == 4


def test_an_unknown_benchmark_is_named():
    with pytest.raises(ConfigError, match="did you mean mbpp"):
        definition_of("mbp")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere", "--benchmark", "mbpp"), "Error: model nowhere: must be the folder of a model"),
        (("x", "--benchmark", "mbp"), "Error: --benchmark mbp: did you mean mbpp"),
        (("x", "--benchmark", "mbpp", "samples=4"), "Error: samples = 4 of temperature 0"),
        (("x", "--benchmark", "mbpp", "k=[2]"), "Error: k = [2]: must not exceed samples, 1"),
        (("x", "--benchmark", "mbpp", "sampels=4"), "Error: sampels: no such setting; did you mean samples?"),
        (("x", "--benchmark", "mbpp", "recipe.yaml"), "Error: recipe.yaml: with --benchmark, settings have the form"),
        (("x", "--data", "y"), "Error: --data needs --benchmark"),
        (("x", "--benchmark", "mbpp", "--problems", "y"), "Error: --problems needs no --benchmark"),
        (("compare", "a", "b"), "Error: a: has no result.json"),
    ],
)
def test_mistakes_are_named(words, message, complaint):
    code, error = complaint("evaluate", *words)
    assert code == 2
    assert error.startswith(message)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "AUTOCLAVE_CACHE": str(folder / "cache")}
