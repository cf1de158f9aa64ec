"""Records of real sets: every row is read, and its official solutions pass as published."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import CallTests, InputError, IsolationError, Program, StdinTests
from autoclave.core.files import read_jsonl
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.readers import raw_files, read_rows

for _library in ("pyarrow", "ijson", "zstandard"):
    pytest.importorskip(_library, reason="needs the extra `curate`")

SETS = {
    "aime24.jsonl.gz": ("aime", 30),
    "apps_codetree.jsonl.gz": ("code_contests", 148),
    "apps_train_5_ondisk.jsonl.gz": ("apps", 5),
    "code_contests_dev.jsonl.gz": ("rllm", 42),
    "codeforces_problems_dev.jsonl.gz": ("codeforces", 135),
    "format_deepcoder_reencoded.jsonl.gz": ("deepcoder", 5),
    "format_eurus2_reencoded.parquet": ("eurus2", 5),
    "format_lcb_execution_reencoded.jsonl.gz": ("livecodebench_execution", 30),
    "format_lcb_test_output_reencoded.jsonl.gz": ("livecodebench_test_output", 12),
    "format_synthetic1_reencoded.jsonl.gz": ("synthetic1", 5),
    "format_taco_reencoded.jsonl.gz": ("taco", 5),
    "humaneval.jsonl.gz": ("humaneval", 164),
    "humaneval_plus_mini.jsonl.gz": ("humaneval_plus", 164),
    "humanevalpack_python_even.jsonl.gz": ("humanevalpack", 82),
    "lcb_codegen_samples.jsonl.gz": ("livecodebench", 3),
    "leetcode_v020_dev300.jsonl.gz": ("leetcode", 300),
    "leetcode_v030_dev30.jsonl.gz": ("leetcode", 30),
    "mbpp.jsonl.gz": ("mbpp", 974),
    "rllm_leetcode_dev.jsonl.gz": ("rllm", 300),
    "sandboxfusion_code_contests.jsonl.gz": ("code_contests", 20),
}


def candidates(data: Path, name: str) -> list[ProblemCandidate]:
    layout, _ = SETS[name]
    rows = list(read_rows(layout, layout, raw_files(data / name).rows()))
    assert all(isinstance(row, ProblemCandidate) for row in rows), rows
    return [row for row in rows if isinstance(row, ProblemCandidate)]


@pytest.mark.parametrize("name", SETS)
def test_every_row_is_a_problem(data, name):
    found = candidates(data, name)
    assert len(found) == SETS[name][1]
    assert all(candidate.problem.statement.strip() for candidate in found)
    assert len({candidate.problem.id for candidate in found}) == len(found)


def test_files_without_tests_are_refused_as_another_layout(data):
    for name, layout in (
        ("lcb_eval_all_o1mini.jsonl.gz", "livecodebench"),
        ("taco_generation_example_dev.jsonl.gz", "taco"),
    ):
        with pytest.raises(InputError, match="none of the first 100 rows"):
            list(read_rows(layout, layout, raw_files(data / name).rows()))


def test_five_problems_have_the_same_tests_in_six_layouts(data):
    names = [
        name
        for name in SETS
        if name.startswith(("apps_train", "format_deepcoder", "format_eurus2", "format_syn", "format_taco"))
    ]
    tests = [[candidate.problem.tests for candidate in candidates(data, name)] for name in names]
    for each in zip(*tests, strict=True):
        cases = [one.cases for one in each if isinstance(one, StdinTests | CallTests)]
        assert len(cases) == len(names)
        assert all(one == cases[0] for one in cases)


def test_apps_on_disk_is_read_as_its_records_are(data, tmp_path):
    for _, record in read_jsonl(data / "apps_train_5_ondisk.jsonl.gz"):
        folder = tmp_path / "train" / record["problem"]
        folder.mkdir(parents=True)
        for name, text in record["files"].items():
            (folder / name).write_text(text)
    folders = [
        row.problem
        for row in read_rows("apps", "apps", raw_files(tmp_path).rows())
        if isinstance(row, ProblemCandidate)
    ]
    assert folders == [candidate.problem for candidate in candidates(data, "apps_train_5_ondisk.jsonl.gz")]


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    try:
        opened = LocalJudge(SandboxConfig(), JudgeConfig(workers=2))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


RETURNS_OUTSIDE = 3
FAIL = {
    "apps_train_5_ondisk.jsonl.gz": Counter(compile_error=RETURNS_OUTSIDE),
    "format_taco_reencoded.jsonl.gz": Counter(compile_error=RETURNS_OUTSIDE),
    "format_deepcoder_reencoded.jsonl.gz": Counter(compile_error=1),  # it has at most three solutions of a problem
}
"""By status. The README of the data names 3 solutions with a `return` outside a function."""


@pytest.mark.parametrize("name", [name for name, (layout, _) in SETS.items() if layout not in ("mbpp", "aime")])
def test_official_solutions_pass(data, judge, name):
    """All of sets with failures that are known; else every third problem, and all in soak."""
    every = 1 if name in FAIL or os.environ.get("AUTOCLAVE_SOAK") == "1" else 3
    jobs = [
        judge.submit(JudgeJob(candidate.problem, Program(source)))
        for candidate in candidates(data, name)[::every]
        for source in candidate.problem.solutions
    ]
    statuses = Counter(str(future.result(300).status) for future in jobs)
    del statuses["accepted"]
    assert statuses == FAIL.get(name, Counter())


@pytest.mark.parametrize(
    "name", ["humaneval.jsonl.gz", "humaneval_plus_mini.jsonl.gz", "humanevalpack_python_even.jsonl.gz"]
)
def test_a_program_cannot_redefine_a_helper_of_its_prompt(data, judge, name):
    found = {one.problem.id: one.problem for one in candidates(data, name)}
    cheats = {
        "HumanEval/32": "def poly(xs, x):\n    return 0\n\ndef find_zero(xs):\n    return 0\n",
        "HumanEval/38": "def encode_cyclic(s):\n    return s\n\ndef decode_cyclic(s):\n    return s\n",
        "HumanEval/50": "def encode_shift(s):\n    return s\n\ndef decode_shift(s):\n    return s\n",
    }
    jobs = [judge.submit(JudgeJob(found[id], Program(source))) for id, source in cheats.items()]
    assert {str(future.result(60).status) for future in jobs} == {"wrong_answer"}


def test_reference_programs_of_mbpp_pass(data, judge):
    """Every eighth of the 974, all of which pass."""
    found = candidates(data, "mbpp.jsonl.gz")[::8]
    jobs = [judge.submit(JudgeJob(one.problem, Program(one.problem.solutions[0]))) for one in found]
    assert {str(future.result(300).status) for future in jobs} == {"accepted"}


def test_hidden_tests_of_livecodebench_match_their_statements(data):
    rows = {row["question_id"]: row for _, row in read_jsonl(data / "lcb_codegen_samples.jsonl.gz")}
    for candidate in candidates(data, "lcb_codegen_samples.jsonl.gz"):
        row = rows[candidate.problem.id.removeprefix("livecodebench/")]
        assert isinstance(candidate.problem.tests, StdinTests | CallTests)
        num_public = len(json.loads(row["public_test_cases"]))
        assert len(candidate.problem.tests.cases) > num_public
