"""`score`: responses and problems in, numbers out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import ConfigError, DataError, InputError, IsolationError, JudgeFault, Problem
from autoclave.core.problem import StoredTests
from autoclave.integrations import Scorer, problem_of, score, scoring
from autoclave.judge import LocalJudge

LINE = {
    "format": "autoclave-problem/1",
    "statement": "Add.",
    "tests": {
        "kind": "stdin",
        "cases": [{"input": "3 4\n", "output": "7\n"}, {"input": "1 1\n", "output": "2\n"}],
    },
}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\nprint(7)\n```"


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=1))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def test_a_response_is_worth_1_if_all_tests_pass(judge: LocalJudge):
    with Scorer(judge=judge) as scorer:
        assert scorer.score([RIGHT, HALF, "no program"], [LINE] * 3) == [1.0, 0.0, 0.0]


def test_a_fraction_is_the_share_of_tests_that_pass(judge: LocalJudge):
    with Scorer(judge=judge, reward="fraction") as scorer:
        assert scorer.score([RIGHT, HALF, "no program"], [LINE] * 3) == [1.0, 0.5, 0.0]


def test_the_judge_of_settings_is_opened_and_closed():
    assert score([RIGHT], [json.dumps(LINE)], settings=["judge.workers=1"]) == [1.0]
    with pytest.raises(ConfigError, match="no such setting"):
        score([RIGHT], [LINE], settings=["judge.wrkers=1"])


def test_a_fault_is_never_a_number():
    with Scorer(["judge.workers=1"]) as scorer:
        for sandbox in scorer._judge._sandboxes:
            sandbox.close()
        with pytest.raises(JudgeFault, match="no verdict"):
            scorer.score([RIGHT], [LINE])


FUNCTION = {"inputs": ["[1, 2]\n3"], "outputs": ["[1, 2, 3]"], "fn_name": "joined"}


@pytest.mark.parametrize(
    "given",
    [LINE, json.dumps(LINE), Problem.from_json(LINE), {"inputs": ["3 4\n"], "outputs": ["7\n"]},
     json.dumps({"inputs": ["3 4\n"], "outputs": ["7\n"], "fn_name": None})],
)  # fmt: skip
def test_a_problem_has_many_forms(judge: LocalJudge, given: object):
    with Scorer(judge=judge) as scorer:
        assert scorer.score([RIGHT], [given]) == [1.0]


@pytest.mark.parametrize(
    "program", ["def joined(a, b): return a + [b]", "class Solution:\n    def joined(self, a, b): return a + [b]"]
)
def test_a_function_is_called(judge: LocalJudge, program: str):
    with Scorer(judge=judge) as scorer:
        assert scorer.score([f"```python\n{program}\n```"], [FUNCTION]) == [1.0]


def test_a_digest_is_a_problem_that_a_server_has():
    assert problem_of("0" * 64).tests == StoredTests("stored", "0" * 64)


def test_an_answer_is_compared(judge: LocalJudge):
    tests = {"kind": "answer", "expected": "42", "comparator": "value"}
    problem = {"format": "autoclave-problem/1", "statement": "?", "tests": tests}
    with Scorer(judge=judge) as scorer:
        assert scorer.score([r"It is \boxed{42}.", r"It is \boxed{41}."], [problem] * 2) == [1.0, 0.0]


@pytest.mark.parametrize(
    "given",
    ["no JSON", {"a": 1}, {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": ["1", "2"]},
     {"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, {"inputs": [1], "outputs": ["1"]},
     {"inputs": ["1"], "outputs": ["1"], "fn": "f"}],
)  # fmt: skip
def test_an_invalid_problem_is_refused(given: object):
    with pytest.raises(DataError, match="problem"):
        problem_of(given)


def test_the_numbers_of_problems_and_responses_must_be_equal(judge: LocalJudge):
    with Scorer(judge=judge) as scorer, pytest.raises(InputError, match="one problem per response"):
        scorer.score([RIGHT], [])
    with pytest.raises(InputError, match="binary or fraction"):
        Scorer(judge=judge, reward="half")


def test_no_framework_is_loaded_before_it_is_needed():
    program = (
        "import sys, autoclave.integrations; "
        "print({'torch', 'trl', 'verl', 'inspect_ai', 'transformers', 'httpx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_concurrent_threads_share_one_scorer(monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []
    everybody = threading.Barrier(8)

    class Slow:
        def __init__(self, *_: object, **__: object) -> None:
            time.sleep(0.1)
            opened.append("once")

        def close(self) -> None:
            pass

    monkeypatch.setattr(scoring, "Scorer", Slow)

    def ask(_: int) -> object:
        everybody.wait()
        return scoring.scorer_of_process(("judge.workers=1",), "binary")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(8)))) == 1
    assert opened == ["once"]
    scoring._kept_scorer.cache_clear()
