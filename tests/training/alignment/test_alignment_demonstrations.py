"""What the warm start is shown of alignment samples, and what alignment is measured on: made by the real judge."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from autoclave.compose.alignment import HELDOUT_RUNS, alignment_demonstrations, heldout_items
from autoclave.compose.host import build_judge
from autoclave.config import AlignmentConfig, JudgeConfig, SandboxConfig, SyntheticConfig, TrainConfig
from autoclave.core import IsolationError
from autoclave.judge import Judge
from autoclave.models import build_tiny_policy
from autoclave.problems import ProblemSets

LIMITS: dict[str, Any] = {"variables": 1, "input_characters": 8, "value_characters": 2, "program_characters": 110}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    try:
        found = build_judge(JudgeConfig(), SandboxConfig())
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with found:
        yield found


def config(**alignment: Any) -> TrainConfig:
    settings: dict[str, Any] = {"template": "plain", "sft_share": 0.5, "limits": LIMITS} | alignment
    return TrainConfig(
        problems=SyntheticConfig(train=200, heldout=200), alignment=AlignmentConfig.model_validate(settings)
    )


def told(judge: Judge, **alignment: Any) -> list[tuple[dict[str, int], dict[str, int]]]:
    """For each alignment sample about a number `n`: what the answer says, and what Python makes of the program that is
    shown."""
    settings = config(**alignment)
    found: list[tuple[dict[str, int], dict[str, int]]] = []
    for each in alignment_demonstrations(settings, ProblemSets(settings), judge, 90):
        asked = re.fullmatch(r"(.*)\n# (.*)\nvalues: n", each.messages[0]["content"], re.DOTALL)
        if asked:
            found.append((json.loads(each.response.splitlines()[-1]), {"n": final_n(*asked.groups())}))
    assert len(found) > 10
    return found


def final_n(program: str, given: str) -> int:
    names: dict[str, Any] = {"input": lambda: given, "print": lambda *_: None}
    if program.startswith("def f"):
        *lines, last = program.splitlines()
        assert last.startswith("    return ")
        exec("\n".join([*lines, "    return n"]), names)
        return eval(given, names)
    exec(program, names)
    return names["n"]


def test_answers_that_are_shown_are_right(judge: Judge):
    assert all(answer == truth for answer, truth in told(judge))


def test_a_careless_teacher_tells_what_other_programs_compute(judge: Judge):
    careless = told(judge, sft_error_rate=0.5)
    assert 0.2 < sum(answer == truth for answer, truth in careless) / len(careless) < 0.8


def test_what_is_computed_on_the_way_ends_with_the_answer(judge: Judge):
    settings = config(sft_error_rate=0.3)
    for each in alignment_demonstrations(settings, ProblemSets(settings), judge, 60):
        *working, answer = each.response.splitlines()
        if '"n"' in answer:
            values = json.loads(answer)
            assert working[-1] == f"n: {values.get('n', values.get('variables', {}).get('n'))}"


def test_a_heldout_solution_is_asked_about_on_a_few_of_its_tests(judge: Judge):
    settings = config(evaluation_items=40)
    problems = ProblemSets(settings)
    tokenizer = build_tiny_policy(settings.model.tiny, ["n = 3"], seed=0, device="cpu").tokenizer
    found = heldout_items(settings, judge, tokenizer, problems.heldout, None)
    assert found.keys() == {"execution_semantics", "trace_inference", "output_prediction", "test_output_prediction"}
    for items in found.values():
        assert len({item.id for item in items}) == len(items) > 10
        assert 1 < max(Counter(item.payload.problem_id for item in items).values()) <= HELDOUT_RUNS
