"""`score`: responses and problems in, numbers out."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import (
    ConfigError,
    DataError,
    Fault,
    InputError,
    IsolationError,
    JudgeFault,
    Problem,
    Status,
    Verdict,
)
from autoclave.core.problem import StoredTests
from autoclave.integrations import Scorer, problem_of, score, scoring
from autoclave.judge import LocalJudge
from autoclave.problems.candidate import SkippedRow
from autoclave.problems.readers import raw_files, read_rows

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
    ["no JSON", "", "34", None, {"a": 1}, [], {"inputs": [], "outputs": []}, {"inputs": ["1"], "outputs": ["1", "2"]},
     {"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}, {"functional": ""}, ["1", "2"],
     [{"input": "1", "output": "1", "testtype": "functional"}], [{"input": "1"}]],
)  # fmt: skip
def test_an_invalid_problem_is_refused(given: object):
    with pytest.raises(DataError, match="problem"):
        problem_of(given)


def joined(a: list[int], b: int) -> str:
    return json.dumps({"input": f"{a}\n{b}", "output": f"{[*a, b]}", "testtype": "functional"})


CALL = {"metadata": {"func_name": "joined"}}
ASSERTS = ["assert joined([1], 2) == [1, 2]", "assert joined([], 3) == [3]"]


@pytest.mark.parametrize(
    ("given", "context", "kind"),
    [
        ([{"input": "1\n", "output": "1\n", "testtype": "stdin"}], {}, "stdin"),
        ('[{"input": "1\\n", "output": "1\\n", "type": "stdin_stdout"}]', {}, "stdin"),
        ({"input_output": '{"inputs": ["1\\n"], "outputs": ["1\\n"]}'}, {}, "stdin"),
        (f"[{joined([1], 2)}]", CALL, "call"),
        (f"[{joined([1], 2)}]", {"metadata": json.dumps(CALL["metadata"])}, "call"),
        ([json.loads(joined([1], 2)) | CALL], {}, "call"),
        ({"inputs": [[[1], 2]], "outputs": [[[1, 2]]], "fn_name": "joined"}, {}, "call"),
        (ASSERTS, {}, "check"),
        (json.dumps({"assert_case": ASSERTS}), {}, "check"),
        ("\n".join(ASSERTS), {}, "check"),
        ({"functional": "def check(candidate):\n    assert candidate([], 3) == [3]\n\ncheck(joined)"}, {}, "check"),
        ({"functional": "\n".join(ASSERTS).replace("joined", "Solution().joined")}, {}, "check"),
    ],
)
def test_tests_are_read_in_the_forms_of_public_sets(judge: LocalJudge, given: object, context: dict, kind: str):
    assert problem_of(given, context).tests.kind == kind
    program = "class Solution:\n    def joined(self, a, b): return a + [b]\njoined = Solution().joined\n"
    program += "if __name__ == '__main__': print(input())" if kind == "stdin" else ""
    wrong = "def joined(a, b): return a\nclass Solution:\n    def joined(self, a, b): return a"
    with Scorer(judge=judge) as scorer:
        verdicts = scorer.verdicts(
            [f"```python\n{one}\n```" for one in (program, wrong)], [given] * 2, contexts=[context] * 2
        )
    assert [verdict.is_accepted for verdict in verdicts] == [True, False], verdicts


def test_a_single_line_of_a_function_is_one_argument():
    tests = problem_of({"inputs": ["[1, 2]"], "outputs": ["3"], "fn_name": "total"}).tests
    assert [(case.arguments, case.output) for case in tests.cases] == [([[1, 2]], 3)]


def test_rows_of_public_sets_are_read_as_by_curation(data: Path):
    for name, layout in {
        "format_deepcoder_reencoded.jsonl.gz": "deepcoder",
        "format_eurus2_reencoded.parquet": "eurus2",
        "format_synthetic1_reencoded.jsonl.gz": "synthetic1",
        "format_taco_reencoded.jsonl.gz": "taco",
        "rllm_leetcode_dev.jsonl.gz": "rllm",
        "code_contests_dev.jsonl.gz": "code_contests",
        "lcb_codegen_samples.jsonl.gz": "livecodebench",
        "apps_train_5_ondisk.jsonl.gz": "apps",
        "humaneval_plus_mini.jsonl.gz": "humaneval_plus",
        "mbpp.jsonl.gz": "mbpp",
        "leetcode_v030_dev30.jsonl.gz": "leetcode",
        "codeforces_problems_dev.jsonl.gz": "codeforces",
        "sandboxfusion_code_contests.jsonl.gz": "code_contests",
    }.items():
        for row in itertools.islice(raw_files(data / name).rows(), 20):
            read = next(iter(read_rows(layout, "", [row])))
            expected = read.reason if isinstance(read, SkippedRow) else read.problem.digest
            assert digest_or_reason(row.fields) == expected, row.place
            if truth := row.fields.get("reward_model"):
                assert digest_or_reason(truth["ground_truth"]) == expected
            if layout in ("deepcoder", "rllm"):
                assert digest_or_reason(row.fields["tests"], row.fields) == expected


def digest_or_reason(given: object, context: Mapping[str, object] | None = None) -> str:
    try:
        return problem_of(given, context).digest
    except DataError as error:
        return str(error).split(": ")[1]


def test_a_row_that_cannot_be_judged_has_no_verdict_and_is_reported_once(
    judge: LocalJudge, caplog: pytest.LogCaptureFixture
):
    odd, language = {"functional": ""}, LINE | {"language": "befunge"}
    with Scorer(judge=judge) as scorer:
        for _ in range(2):
            verdicts = scorer.verdicts([RIGHT] * 4, [LINE, odd, odd, language], ["1", "row 7", "row 7", "9"])
            assert [verdict.status for verdict in verdicts] == [Status.ACCEPTED, None, None, None]
            assert verdicts[1].fault == Fault("problem", "problem: no_tests: the script of assertions is empty")
        assert [one.getMessage().split(" cannot")[0] for one in caplog.records if "integrations" in one.name] == [
            "row row 7",
            "row 9",
        ]
        with pytest.raises(JudgeFault, match="no verdict: problem: "):
            scorer.score([RIGHT], [odd])


def test_cancelling_a_response_cancels_its_judging():
    judged: Future[Verdict] = Future()

    class Held:
        level = "sealed"

        def submit(self, job: object) -> Future[Verdict]:
            return judged

    with Scorer(judge=cast("Any", Held())) as scorer:
        future = scorer.submit(RIGHT, LINE)
        assert future.cancel()
        assert judged.cancelled()


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
