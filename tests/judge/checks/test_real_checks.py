"""Real checks with programs whose verdicts are known; the data lie in the folder that AUTOCLAVE_DATA names.

Most sets are run in part by default: every n-th record. With AUTOCLAVE_DATA_SHARE=all every record is run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autoclave.config.languages import ProfileConfig
from autoclave.config.sandbox import JudgeConfig
from autoclave.core import IsolationError, Problem, Program
from autoclave.judge import JudgeJob, LocalJudge, stream
from tests.real_problems import (
    NEEDS_DATA,
    human_eval,
    human_eval_pack,
    human_eval_without_prompt,
    leet_code,
    mbpp,
    records,
    rllm_leet_code,
)

pytestmark = NEEDS_DATA
EVERY = 1 if os.environ.get("AUTOCLAVE_DATA_SHARE") == "all" else 10
PROFILES = {f"{base}_sorted": ProfileConfig(base=base, packages=("sortedcontainers",)) for base in ("plain", "lcb")}
WITHOUT_NODE_CLASSES = {9, 12, 16, 30, 36, 40, 46, 77, 105, 107, 112, 115, 136, 143, 173, 214, 230, 263, 266, 267, 290}


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    """With the limits that users have."""
    try:
        opened = LocalJudge(judge_config=JudgeConfig(workers=2, profiles=PROFILES))
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


def statuses(judge: LocalJudge, pairs: list[tuple[Problem, str]]) -> list[str]:
    """The status of each program, in order."""
    jobs = [JudgeJob(problem, Program(source), str(number)) for number, (problem, source) in enumerate(pairs)]
    return [str(verdict.status) for _, verdict in stream(judge, jobs)]


def with_packages(problem: Problem, source: str) -> tuple[Problem, str]:
    """One reference of LeetCodeDataset, which rllm has too, uses a package that no built-in profile shows."""
    needed = f"{problem.profile}_sorted" if "sortedcontainers" in source else problem.profile
    return replace(problem, profile=needed), source


def test_references_of_human_eval_are_accepted(judge):
    pairs = [(human_eval(r), r["prompt"] + r["canonical_solution"]) for r in records("humaneval")]
    assert set(statuses(judge, pairs)) == {"accepted"}


def test_references_of_mbpp_are_accepted(judge):
    pairs = [(mbpp(r), r["code"].replace("\r\n", "\n")) for r in records("mbpp")[::EVERY]]
    assert set(statuses(judge, pairs)) == {"accepted"}


@pytest.mark.parametrize(("name", "every"), [("leetcode_v020_dev300", EVERY), ("leetcode_v030_dev30", 1)])
def test_references_of_leetcode_are_accepted(judge, name: str, every: int):
    chosen = [r for i, r in enumerate(records(name)) if i % every == 0 or "sortedcontainers" in r["completion"]]
    pairs = [with_packages(leet_code(r), r["completion"]) for r in chosen]
    assert set(statuses(judge, pairs)) == {"accepted"}


def test_references_of_rllm_are_accepted_where_they_run_at_all(judge):
    found = records("rllm_leetcode_dev")
    chosen = [i for i in range(len(found)) if i % EVERY == 0 or i in WITHOUT_NODE_CLASSES]
    results = statuses(judge, [with_packages(rllm_leet_code(found[i], i), found[i]["solutions"]) for i in chosen])
    assert {i for i, status in zip(chosen, results, strict=True) if status != "accepted"} == WITHOUT_NODE_CLASSES


def test_fixed_programs_of_human_eval_pack_are_accepted(judge):
    pairs = [(human_eval_pack(r), r["prompt"] + r["canonical_solution"]) for r in records("humanevalpack_python_even")]
    assert set(statuses(judge, pairs)) == {"accepted"}


def test_buggy_programs_of_human_eval_pack_are_not_accepted():
    pairs = [(human_eval_pack(r), r["prompt"] + r["buggy_solution"]) for r in records("humanevalpack_python_even")]
    short = JudgeConfig(workers=2, time_limit_range=(0.5, 0.5), default_time_limit_s=0.5)  # some never end
    with LocalJudge(judge_config=short) as judge:
        assert "accepted" not in statuses(judge, pairs)


def test_model_programs_get_the_verdict_that_others_gave_them(judge):
    found = records("model_programs_humaneval_gpt35")
    results = statuses(judge, [(human_eval_without_prompt(r), r["solution"]) for r in found])
    assert [status == "accepted" for status in results] == [r["is_solved"] for r in found]
    assert results.count("accepted") == 121
