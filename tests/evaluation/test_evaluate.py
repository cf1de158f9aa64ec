"""Figures of an evaluation, counted by hand, with a scripted sampler and scripted rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from autoclave.core import FaultError, FinishReason, Reward
from autoclave.evaluation import Evaluation, evaluate
from autoclave.evaluation.intervals import share_interval
from autoclave.rollout import SamplingParameters, by_last_turn
from tests.training_parts import DEADLINE_S, ScriptedSampler, completion, earned, item, settled

pytestmark = pytest.mark.timeout(DEADLINE_S)

Script = Mapping[str, Sequence[float | None]]
"""What the responses to each item earn, in order; the greedy one is the last."""


def evaluation_of(
    script: Script, *, with_greedy: bool = True, lengths: Sequence[int] = (3,), sampler: ScriptedSampler | None = None
) -> Evaluation:
    """An evaluation in which sample `s` of item `i` says "i/s", has `lengths[s]` tokens, and earns `script[i][s]`."""
    names = list(script)
    samples = len(script[names[0]]) - with_greedy

    def answer(asked):
        name, sample = names[asked.seed[-2]], asked.seed[-1]
        size = lengths[sample % len(lengths)]
        finish = FinishReason.LENGTH if size > 4 else FinishReason.STOP
        return completion([5] * size, text=f"{name}/{sample}", finish_reason=finish)

    def reward(asked, response: str):
        return settled(earned(script[asked.id][int(response.rpartition("/")[2])]))

    return evaluate(
        [item(name) for name in names],
        sampler=sampler or ScriptedSampler(answer),
        grade=by_last_turn(reward),
        encode=lambda asked: np.array([2, 3]),
        family=lambda asked: asked.id[0],
        parameters=SamplingParameters(max_new_tokens=5, stops=("#",)),
        samples=samples,
        with_greedy=with_greedy,
        seed=(7, 0),
    )


# --- Counting ------------------------------------------------------------------------------------------------------


def test_greedy_responses_are_counted_separately():
    evaluation = evaluation_of({"a1": [1, 0, 1, 0, 1], "a2": [0, 0, 0, 0, 1], "b1": [1, 1, 1, 1, 0]})
    assert [(p.id, p.judged, p.correct, p.greedy) for p in evaluation.problems] == [
        ("a1", 4, 2, True),
        ("a2", 4, 0, True),
        ("b1", 4, 4, False),
    ]
    assert evaluation.pass_at_1 == pytest.approx((2 / 4 + 0 + 1) / 3)
    assert evaluation.greedy == [1.0, 1.0, 0.0]
    assert evaluation.pass_at(2) == pytest.approx((1 - 1 / 6 + 0 + 1) / 3)  # 2 of 4: one pair of six is all wrong
    assert evaluation.to_metrics()["greedy"] == pytest.approx(2 / 3)


def test_responses_without_a_verdict_are_left_out_and_not_counted_as_wrong():
    evaluation = evaluation_of({"a1": [1, None, 1, None], "a2": [0, 1, None, 0], "b1": [None, None, None, 1]})
    assert [(p.judged, p.correct, p.greedy) for p in evaluation.problems] == [
        (2, 2, None),
        (2, 1, False),
        (0, 0, True),
    ]
    assert evaluation.rates == {"a1": 1.0, "a2": 0.5}
    assert evaluation.pass_at_1 == pytest.approx(0.75)
    assert evaluation.no_verdict_share == pytest.approx(5 / 9)
    assert evaluation.greedy == [0.0, 1.0]


def test_a_problem_with_too_few_verdicts_is_left_out_of_pass_at_k():
    evaluation = evaluation_of({"a1": [1, None, 1], "a2": [0, 1, 1], "b1": [0, 0, 0]})
    assert evaluation.pass_at(2) == pytest.approx(1 / 2)  # a2 and b1
    assert evaluation.to_metrics()["pass@2"] == pytest.approx(1 / 2)


def test_metrics_without_any_complete_problem_have_no_pass_at_k_and_do_not_fail():
    metrics = evaluation_of({"a1": [1, None, 1], "b1": [None, 0, 1]}).to_metrics()
    assert metrics["pass@1"] == pytest.approx(1 / 2)
    assert math.isnan(metrics["pass@2"])


def test_greedy_metrics_without_a_verdict_are_nan():
    metrics = evaluation_of({"a1": [1, 1, None], "b1": [0, 0, None]}).to_metrics()
    assert math.isnan(metrics["greedy"])
    assert math.isnan(metrics["greedy/low"])


def test_an_evaluation_without_any_verdict_raises_the_causes():
    with pytest.raises(FaultError, match=r"no verdict on any of 4 responses: .*no cell could be made"):
        evaluation_of({"a1": [None, None, 1], "b1": [None, None, 1]})


def test_shares_and_lengths_are_over_the_sampled_responses_alone():
    evaluation = evaluation_of({"a1": [1, 0, 1], "b1": [1, 0, 1]}, lengths=(2, 5, 400))
    assert evaluation.truncated_share == 0.5
    assert evaluation.mean_response_length == 3.5


def test_without_greedy_no_greedy_request_is_sent():
    evaluation = evaluation_of({"a1": [1, 0]}, with_greedy=False)
    assert evaluation.problems[0].greedy is None
    assert evaluation.samples == 2


# --- What is asked -------------------------------------------------------------------------------------------------


def test_samples_have_their_own_seeds_and_the_last_is_greedy():
    sampler = ScriptedSampler(lambda asked: completion(text="x/0"))
    evaluation_of({"a1": [1, 1, 1], "b1": [1, 1, 1]}, sampler=sampler)
    assert [asked.parameters.temperature for asked in sampler.asked] == [1.0, 1.0, 0.0] * 2
    assert {(asked.parameters.max_new_tokens, asked.parameters.stops) for asked in sampler.asked} == {(5, ("#",))}
    assert [asked.seed for asked in sampler.asked] == [(7, 0, i, s) for i in range(2) for s in range(3)]


# --- Figures -------------------------------------------------------------------------------------------------------


def test_families_have_their_own_figures():
    families = evaluation_of({"a1": [1, 0, 1], "b1": [1, 1, 0], "a2": [0, 0, 0]}).to_metrics()["families"]
    assert families == {
        "a": {"problems": 2, "pass@1": 0.25, "greedy": 0.5},
        "b": {"problems": 1, "pass@1": 1.0, "greedy": 0.0},
    }


def test_intervals_are_over_problems():
    script = {f"a{number}": [number % 2, number % 3 == 0, number % 5 == 0] for number in range(20)}
    evaluation = evaluation_of(script)
    metrics = evaluation.to_metrics()
    expected = share_interval([sum(script[f"a{n}"][:2]) / 2 for n in range(20)])
    assert (metrics["pass@1/low"], metrics["pass@1/high"]) == (expected.lower, expected.upper)
    greedy = share_interval([float(n % 5 == 0) for n in range(20)])
    assert (metrics["greedy/low"], metrics["greedy/high"]) == (greedy.lower, greedy.upper)


def test_the_file_holds_the_metrics_and_every_problem_as_strict_json():
    evaluation = evaluation_of({"a1": [1, None, None], "b1": [None, None, 0]})

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not JSON")

    written = json.loads(evaluation.to_json(), parse_constant=refuse)
    assert written["metrics"]["pass@1"] == 1.0
    assert written["metrics"]["pass@2"] is None
    assert written["metrics"]["families"]["b"]["pass@1"] is None
    assert written["problems"][0] == {"id": "a1", "family": "a", "judged": 1, "correct": 1, "greedy": None}


def test_an_exception_of_the_judge_is_raised():
    def refuse(asked, response: str):
        raise OSError("no sandbox")

    with pytest.raises(OSError, match="no sandbox"):
        evaluate(
            [item()],
            sampler=ScriptedSampler(lambda asked: completion()),
            grade=by_last_turn(refuse),
            encode=lambda asked: np.array([2, 3]),
            family=lambda asked: "all",
            parameters=SamplingParameters(),
            samples=1,
            with_greedy=False,
            seed=(0,),
        )


def test_a_reward_without_a_verdict_counts_as_none():
    def unjudged(asked, response: str):
        return settled(Reward(None, "no_verdict"))

    with pytest.raises(FaultError):
        evaluate(
            [item()],
            sampler=ScriptedSampler(lambda asked: completion()),
            grade=by_last_turn(unjudged),
            encode=lambda asked: np.array([2, 3]),
            family=lambda asked: "all",
            parameters=SamplingParameters(),
            samples=1,
            with_greedy=False,
            seed=(0,),
        )
