from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import AlignmentSample, DataError, TaskItem
from autoclave.core.json import to_plain
from autoclave.core.trace import literal
from autoclave.report.cases import SHOWN_PROGRAM, SHOWN_VALUE, SHOWN_VALUES, shown_alignment_sample, shown_answer
from autoclave.runs.rollouts import RecordedRollout
from autoclave.tasks import ExecutionSemantics
from tests.strategies import names, primitives


def alignment_sample_with(**more: Any) -> AlignmentSample:
    words = {"problem_id": "p", "test": 0, "program": "n = 3", "entry": "<module>", "input": "3"} | more
    return AlignmentSample(**words)


def answered(alignment_sample: AlignmentSample, response: str) -> RecordedRollout:
    """As training records it, with the reward of the task itself."""
    reward = (
        ExecutionSemantics().reward(TaskItem("execution_semantics", "", "", (), alignment_sample), response).result()
    )
    return RecordedRollout({
        "task": "execution_semantics", "response": response, "reward": reward.value, "reason": reward.reason,
        "reward_parts": dict(reward.parts), "verdict": None, "alignment_sample": to_plain(alignment_sample),
    })  # fmt: skip


def rows(alignment_sample: AlignmentSample, response: str) -> list[tuple[str, str, str | None, bool]]:
    answer = shown_answer(answered(alignment_sample, response))
    assert answer is not None
    return [(value.name, value.true, value.predicted, value.is_right) for value in answer.values]


def test_each_variable_stands_with_its_true_and_its_predicted_value():
    alignment_sample = alignment_sample_with(
        variables={"n": "3", "s": "'3'", "is_odd": "True", "left": "None", "f.x": "nan"}
    )
    assert rows(alignment_sample, 'I think\n{"n": 3.0, "s": 3, "is_odd": true, "f.x": NaN}') == [
        ("n", "3", "3.0", False),
        ("s", "'3'", "3", False),
        ("is_odd", "True", "True", True),
        ("left", "None", None, False),
        ("f.x", "nan", "nan", True),
    ]


def test_an_output_is_one_value():
    assert rows(alignment_sample_with(result="3\n4\n"), '{"final_output": "3\\n4"}') == [
        ("what it prints", r"'3\n4'", r"'3\n4'", True)
    ]
    assert rows(alignment_sample_with(entry="f", input="f(3)", result="[1, (2,)]"), '{"final_output": [1, 2]}') == [
        ("what it returns", "[1, (2,)]", "[1, 2]", False)
    ]


@pytest.mark.parametrize(
    ("response", "why"),
    [
        ("", "the response is empty"),
        ("n is 3", "the last line is not JSON"),
        ("[3]", "the last line is not a JSON object"),
        ('{"n": 3, "n": 3}', "a key occurs twice"),
        ('{"n": "' + "x" * 1_000_000 + '"}', "the last line is too long"),
        ("[" * 100_000, "the last line is not JSON"),
    ],
    ids=["empty", "text", "list", "twice", "long", "deep"],
)
def test_what_is_no_answer_says_why_and_nothing_of_it_is_right(response: str, why: str):
    rollout = answered(alignment_sample_with(variables={"n": "3"}), response)
    answer = shown_answer(rollout)
    assert answer is not None
    assert answer.malformed == why
    assert [(value.true, value.predicted, value.is_right) for value in answer.values] == [("3", None, False)]
    assert (rollout.status, rollout.reason, rollout.is_accepted) == ("bad_format", "bad_format", False)


def test_keys_that_nobody_asked_for_are_counted():
    answer = shown_answer(answered(alignment_sample_with(variables={"n": "3"}), '{"n": 3, "m": 4, "k": 5}'))
    assert answer is not None
    assert (answer.num_others, answer.values[0].is_right) == (2, True)


def test_a_float_that_was_rewarded_as_right_is_shown_as_right():
    alignment_sample = alignment_sample_with(variables={"x": "0.1"})
    rollout = answered(alignment_sample, '{"x": 0.1000001}')
    tolerant = RecordedRollout({**rollout.record, "reason": "exact", "reward_parts": {"variable/x": 1.0}})
    answers = [shown_answer(rollout), shown_answer(tolerant)]
    assert [answer and answer.values[0].is_right for answer in answers] == [False, True]


def test_where_the_program_came_from_is_told():
    labels = [
        shown_alignment_sample(alignment_sample_with(source=source, version=4)).program_label
        for source in ("failed", "random", "reference")
    ]
    assert labels == [
        "a failed response of version 4 of the policy",
        "a response of version 4 of the policy",
        "a solution of the problem",
    ]


def test_without_an_alignment_sample_there_is_no_answer():
    assert shown_answer(RecordedRollout({"response": '{"n": 3}', "reward": 1.0})) is None
    assert shown_answer(RecordedRollout({"response": '{"n": 3}', "reward": 1.0, "alignment_sample": None})) is None


def test_a_damaged_alignment_sample_is_named_with_its_place():
    rollout = RecordedRollout({"alignment_sample": {"problem_id": "p"}}, "step-000001.jsonl.gz:7")
    with pytest.raises(DataError, match=r"step-000001\.jsonl\.gz:7: alignment sample: "):
        shown_answer(rollout)


def test_what_is_shown_of_a_huge_case_is_bounded():
    huge = "x" * 1_000_000
    variables = {huge: literal(huge)} | {f"v{number}": "1" for number in range(5000)}
    alignment_sample = alignment_sample_with(program=huge, input=huge, variables=variables)
    shown = shown_alignment_sample(alignment_sample)
    answer = shown_answer(answered(alignment_sample, json.dumps({"v0": "y" * 90_000, "v1": int("9" * 4000)})))
    assert answer is not None
    assert max(len(shown.program), len(shown.input)) < SHOWN_PROGRAM + 100
    assert len(answer.values) == SHOWN_VALUES
    assert answer.num_left_out == 5001 - SHOWN_VALUES
    longest = max(len(text or "") for value in answer.values for text in (value.name, value.true, value.predicted))
    assert SHOWN_VALUE < longest < SHOWN_VALUE + 100


def test_a_deep_value_does_not_end_the_page():
    deep = '{"n": ' + "[" * 900 + "]" * 900 + "}"
    answer = shown_answer(answered(alignment_sample_with(variables={"n": "3"}), deep))
    assert answer is not None
    assert answer.malformed or "too deep" in (answer.values[0].predicted or "")


@given(st.dictionaries(names(), primitives(), min_size=1, max_size=5), st.text(max_size=60))
def test_a_value_is_marked_right_as_often_as_it_was_rewarded(variables: dict[str, Any], response: str):
    alignment_sample = alignment_sample_with(variables={name: literal(value) for name, value in variables.items()})
    for text in (response, json.dumps(variables)):
        rollout = answered(alignment_sample, text)
        answer = shown_answer(rollout)
        assert answer is not None
        assert sum(value.is_right for value in answer.values) == pytest.approx(
            (rollout.reward or 0.0) * len(variables), abs=1e-9
        )
