from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoclave.algorithms import build_algorithm, mask_format, mask_no_verdict, mask_overlong
from autoclave.config.algorithm import GrpoConfig, GrpoPlusConfig
from autoclave.core import Completion, FinishReason, MaskReason, Reward, Rollout, Status, TaskItem, Verdict


def rollout(
    reward: float | None = 1.0, finish: FinishReason = FinishReason.STOP, status: Status | None = None
) -> Rollout:
    nothing = np.zeros(0, dtype=np.int64)
    log_probs = np.zeros(0, dtype=np.float32)
    completion = Completion(nothing, nothing, log_probs, "raw", finish, "", (), 0.0, 1.0)
    return Rollout(
        TaskItem("code", "1", "1", (), None),
        0,
        (completion,),
        Reward(reward, "test", {}, Verdict.of(status) if status else None),
        length_limit=8,
    )


def reasons(rollouts: tuple[Rollout, ...]) -> list[MaskReason | None]:
    return [each.mask_reason for each in rollouts]


def test_a_fault_of_the_judge_is_masked_and_a_failure_is_not():
    assert reasons(mask_no_verdict([rollout(0.0), rollout(None)])) == [None, MaskReason.NO_VERDICT]


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_overlong_responses_are_masked_whatever_they_earned(reward):
    found = mask_overlong([rollout(reward, finish) for finish in FinishReason])
    assert dict(zip(FinishReason, reasons(found), strict=True)) == {
        FinishReason.STOP: None,
        FinishReason.LENGTH: MaskReason.OVERLONG,
    }


def test_a_response_without_a_program_is_masked_and_a_wrong_program_is_not():
    sampled = [rollout(0.0, status=Status.BAD_FORMAT), rollout(0.0, status=Status.WRONG_ANSWER), rollout(None)]
    assert reasons(mask_format(sampled)) == [MaskReason.FORMAT, None, None]
    settings = GrpoPlusConfig(mask_format=True)
    assert reasons(build_algorithm(settings).mask(sampled)) == [MaskReason.FORMAT, None, MaskReason.NO_VERDICT]


def test_an_episode_that_the_limit_of_turns_ended_is_masked_where_settings_say_so_with_a_reason_of_its_own():
    sampled = [replace(rollout(), ended_by="turns"), replace(rollout(), ended_by="context"), rollout()]
    assert reasons(build_algorithm(GrpoConfig()).mask(sampled)) == [None] * 3
    assert reasons(build_algorithm(GrpoConfig(mask_turn_limit=True)).mask(sampled)) == [MaskReason.TURNS, None, None]


def test_grpo_trains_on_overlong_responses_and_grpo_plus_does_not():
    sampled = [rollout(), rollout(0.0, FinishReason.LENGTH), rollout(None, FinishReason.LENGTH)]
    faults_only = [None, None, MaskReason.NO_VERDICT]
    assert reasons(build_algorithm(GrpoConfig()).mask(sampled)) == faults_only
    assert reasons(build_algorithm(GrpoPlusConfig(mask_overlong=False)).mask(sampled)) == faults_only
    found = reasons(build_algorithm(GrpoPlusConfig()).mask(sampled))
    assert found == [None, MaskReason.OVERLONG, MaskReason.NO_VERDICT]  # the first reason stays
