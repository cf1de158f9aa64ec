"""Results: round trips, what they say of themselves, and that all nouns cross processes."""

from __future__ import annotations

import json
import multiprocessing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import (
    Completion,
    DataError,
    Fault,
    Group,
    MaskReason,
    Outcome,
    Program,
    Rollout,
    Status,
    TestResult,
    Verdict,
)
from autoclave.core.json import canonical_json, from_plain, shown, to_plain
from tests import strategies


def sent(value: Any) -> Any:
    """`value` as another process would get it."""
    here, there = multiprocessing.Pipe()
    with here, there:
        here.send(value)
        return there.recv()


@given(strategies.verdicts())
def test_a_verdict_is_equal_after_a_round_trip(verdict: Verdict):
    assert from_plain(Verdict, json.loads(json.dumps(to_plain(verdict))), "file:1") == verdict


@given(strategies.programs())
def test_a_program_is_equal_after_a_round_trip(program: Program):
    assert from_plain(Program, json.loads(json.dumps(to_plain(program))), "file:1") == program


@given(strategies.verdicts())
def test_a_reward_is_one_exactly_when_accepted_and_absent_exactly_without_a_verdict(verdict: Verdict):
    assert verdict.is_accepted == (verdict.reward == 1.0)
    assert (verdict.reward is None) == (verdict.fault is not None) == (verdict.status is None)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.ACCEPTED])
def test_every_failure_earns_nothing(status: Status):
    assert Verdict.of(status).reward == 0.0


def test_a_fault_is_neither_a_pass_nor_a_fail():
    verdict = Verdict.none(Fault("SandboxFault", "the cell died"), problem_id="add", id="add#1")
    assert (verdict.status, verdict.reward, verdict.is_accepted) == (None, None, False)


def test_a_verdict_has_the_fields_of_the_file_format():
    verdict = Verdict.of(
        Status.WRONG_ANSWER,
        problem_id="add",
        id="add#1",
        failing_test=0,
        tests=[TestResult(0, Status.WRONG_ANSWER, 0.01, 0.02, 9.0)],
        level="sealed",
        message="m",
    )
    assert to_plain(verdict) == {
        "problem_id": "add",
        "id": "add#1",
        "status": "wrong_answer",
        "reward": 0.0,
        "failing_test": 0,
        "tests": [{"index": 0, "status": "wrong_answer", "cpu_s": 0.01, "wall_s": 0.02, "memory_mb": 9.0}],
        "level": "sealed",
        "message": "m",
        "fault": None,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statuss": "accepted"}, "statuss: no such field; did you mean status?"),
        ({"status": "passed"}, "status = \"passed\": must be 'accepted', 'wrong_answer',"),
        ({"reward": "full"}, 'reward = "full": must be a valid number'),
        ({"tests": [{"index": 0}]}, "tests.0.status: required field is missing"),
    ],
)
def test_a_mistake_in_a_verdict_is_named(change: dict[str, Any], message: str):
    plain = to_plain(Verdict.of(Status.ACCEPTED)) | change
    with pytest.raises(DataError) as caught:
        from_plain(Verdict, plain, "verdicts.jsonl:4")
    assert str(caught.value).startswith(f"verdicts.jsonl:4: {message}")


@given(st.one_of(strategies.outcomes(), strategies.verdicts(), strategies.problems(), strategies.programs()))
def test_results_cross_processes(noun: Outcome | Verdict):
    assert sent(noun) == noun


@given(strategies.completions())
def test_a_completion_crosses_processes_with_its_types(completion: Completion):
    arrived = sent(completion)
    assert np.array_equal(arrived.tokens, completion.tokens)
    assert np.array_equal(arrived.log_probs, completion.log_probs)
    assert (arrived.tokens.dtype, arrived.log_probs.dtype) == (np.int64, np.float32)


@settings(max_examples=25)
@given(strategies.groups())
def test_a_group_crosses_processes(group: Group):
    arrived = sent(group)
    assert arrived.item == group.item
    assert [rollout.reward for rollout in arrived.rollouts] == [rollout.reward for rollout in group.rollouts]


@given(strategies.rollouts(), st.sampled_from(MaskReason), st.sampled_from(MaskReason))
def test_a_masked_rollout_does_not_train_and_keeps_the_first_reason(
    rollout: Rollout, first: MaskReason, second: MaskReason
):
    masked = rollout.masked(first).masked(second)
    assert not masked.is_trained
    assert masked.mask_reason is (rollout.mask_reason or first)
    assert masked.last is rollout.last


@given(strategies.plain_values())
def test_the_order_of_keys_and_blanks_do_not_change_the_canonical_form(value: Any):
    reordered = json.loads(json.dumps(_reversed(value), indent=3))
    assert canonical_json(reordered) == canonical_json(value)


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(inner) for inner in value] if isinstance(value, list) else value


@given(strategies.plain_values() | st.text(st.characters(), max_size=100))
def test_a_value_in_a_message_is_short_and_printable(value: Any):
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= 60


def test_a_value_that_is_no_json_is_shown_by_its_type():
    loop: list[Any] = []
    loop.append(loop)
    assert shown(loop) == "<list>"
