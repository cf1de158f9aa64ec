"""Stages of length: when the next one begins, which limit a batch has, and what a response that was cut teaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import (
    AdvanceAtPlateauConfig,
    AdvanceAtStepsConfig,
    AsynchronousConfig,
    DrGrpoConfig,
    GrpoPlusConfig,
    LengthScheduleConfig,
    LengthStageConfig,
    MinibatchPipelineConfig,
    OneOffPipelineConfig,
    ScheduleConfig,
    SynchronousConfig,
)
from autoclave.core import CheckpointError, FinishReason, Group
from autoclave.training.learned import ShuffledItems
from autoclave.training.length_schedule import LengthSchedule, Rewards, StageState, advanced, begun, has_plateau
from autoclave.training.saved_groups import load_groups, save_groups
from autoclave.training.schedules import RunProgress, choose_schedule
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import DEADLINE_S, completion, group_of

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
PLATEAU = AdvanceAtPlateauConfig(window=3, patience=2, tolerance=0.05)


def two_stages(first: int, second: int, *, after: int) -> LengthScheduleConfig:
    stages = (LengthStageConfig(max_new_tokens=first), LengthStageConfig(max_new_tokens=second))
    return LengthScheduleConfig(stages=stages, advance=AdvanceAtStepsConfig(steps=(after,)))


def run_of(rewards: list[Rewards | None], advance=PLATEAU, num_stages: int = 3) -> list[StageState]:
    """The states after each iteration of a run whose batches are begun one by one."""
    states, state = list[StageState](), StageState()
    for iteration, earned in enumerate(rewards):
        state = begun(state, iteration)
        state = advanced(state, advance, num_stages=num_stages, done=iteration + 1, rewards=earned)
        states.append(state)
    return states


# --- When a stage ends ---------------------------------------------------------------------------------------------

rewards = st.builds(Rewards, st.floats(-2, 2), st.floats(0, 4))


@given(st.lists(st.none() | rewards, max_size=60), st.integers(1, 4), st.integers(2, 4), st.integers(1, 3))
def test_a_run_never_goes_back_and_goes_on_by_one_stage_at_most(earned, num_stages, window, patience):
    advance = AdvanceAtPlateauConfig(window=window, patience=patience, tolerance=0.3)
    states = run_of(earned, advance, num_stages)
    stages = [0, *(state.stage for state in states)]
    assert all(after - before in (0, 1) for before, after in pairwise(stages))
    assert stages[-1] < num_stages
    assert states == run_of(earned, advance, num_stages)
    assert all(len(state.seen) <= 2 * window for state in states)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True))
def test_steps_end_stages_when_they_are_done(steps):
    advance = AdvanceAtStepsConfig(steps=tuple(sorted(steps)))
    states = run_of([None] * 45, advance, num_stages=len(steps) + 1)
    assert [state.stage for state in states] == [sum(done >= step for step in steps) for done in range(1, 46)]


def test_a_plateau_ends_a_stage_once_it_has_lasted():
    flat = Rewards(0.5, 0.25)
    assert [state.stage for state in run_of([flat] * 14)] == [0] * 6 + [1] * 7 + [2]  # 2 windows, and 2 in a row
    rising = [Rewards(0.1 * step, 0.25) for step in range(1, 5)]
    assert [state.stage for state in run_of([*rising, *[flat] * 7])] == [0] * 10 + [1]
    broken = run_of([flat] * 6 + [Rewards(0.5, 0.9)] + [flat] * 3)
    assert [state.num_flat for state in broken][5:7] == [1, 0]
    assert broken[-1].stage == 0


@given(
    st.floats(0.05, 0.3),
    st.lists(st.floats(1.06, 1.5), min_size=8, max_size=30),
    st.lists(st.floats(0.0, 1.0), min_size=30, max_size=30),
)
def test_no_stage_ends_while_rewards_still_rise(first, factors, variances):
    """Whatever their variance does: that of rewards of 0 and 1 hardly moves around a mean of 1/2."""
    means = first * np.cumprod(factors)
    earned = [Rewards(float(mean), variance) for mean, variance in zip(means, variances, strict=False)]
    assert run_of(earned)[-1].stage == 0


@given(st.floats(0.01, 0.2), st.lists(st.floats(0.7, 0.9), min_size=8, max_size=30))
def test_no_stage_ends_while_their_variance_still_falls(first, factors):
    earned = [Rewards(0.9, float(first * factor)) for factor in np.cumprod(factors)]
    assert run_of(earned)[-1].stage == 0


def test_a_plateau_is_measured_by_both_windows_whole():
    seen = [Rewards(0.5, 0.2)] * 3 + [Rewards(0.5, 0.21)] * 3
    assert has_plateau(seen, 3, 0.05)  # 0.01 <= 0.05 * 0.21
    assert not has_plateau(seen, 3, 0.04)
    assert not has_plateau(seen[1:], 3, 0.05)
    fallen = [Rewards(0.5, 0.2)] * 3 + [Rewards(0.3, 0.2)] * 3
    assert has_plateau(fallen, 3, 0.05)  # a mean that falls does not rise


# --- Which limit a batch has ---------------------------------------------------------------------------------------


def test_a_batch_that_was_begun_keeps_its_stage():
    length_schedule = LengthSchedule(0, two_stages(2, 5, after=1))
    assert [length_schedule.begin(iteration) for iteration in (0, 1, 2)] == [2, 2, 2]
    assert length_schedule.advance(1, [group_of([1.0], limit=2)]) == 5
    assert [length_schedule.begin(iteration) for iteration in (1, 2, 3, 4)] == [2, 2, 5, 5]
    assert length_schedule.advance(2, [group_of([1.0], limit=2)]) is None


def test_rewards_of_another_stage_do_not_count():
    stages = (LengthStageConfig(max_new_tokens=2), LengthStageConfig(max_new_tokens=5))
    length_schedule = LengthSchedule(0, LengthScheduleConfig(stages=stages, advance=PLATEAU))
    short, long = group_of([1.0, 0.0, None], limit=2), group_of([1.0], limit=5)
    length_schedule.advance(1, [short])
    length_schedule.advance(2, [short, long])
    length_schedule.advance(3, [group_of([None], limit=2)])
    assert length_schedule.state.seen == (Rewards(0.5, 0.25),)
    assert length_schedule.metrics([short, long]) == {
        "length_schedule/stage": pytest.approx(5 / 4),  # three of the first, one of the second
        "length_schedule/max_new_tokens": pytest.approx(11 / 4),
    }
    assert LengthSchedule(8).metrics([short]) == {}


def test_the_state_survives_a_checkpoint_to_the_last_bit(tmp_path):
    stages = (LengthStageConfig(max_new_tokens=2), LengthStageConfig(max_new_tokens=5))
    length_schedule = LengthSchedule(0, LengthScheduleConfig(stages=stages, advance=PLATEAU))
    for iteration in range(9):
        length_schedule.begin(iteration + 1)
        length_schedule.advance(iteration + 1, [group_of([1 / 3, 0.0, 0.7], limit=2)])
    length_schedule.save(tmp_path)
    other = LengthSchedule(0, LengthScheduleConfig(stages=stages, advance=PLATEAU))
    other.load(tmp_path)
    assert other.state == length_schedule.state
    assert other.state.starts == (0, 8)
    for damage in ("{}", '{"starts": [0, 1, 2], "num_begun": 3, "seen": [], "num_flat": 0}', "["):
        (tmp_path / "length_schedule.json").write_text(damage)
        with pytest.raises(CheckpointError, match=r"length_schedule\.json: damaged"):
            other.load(tmp_path)


# --- In every schedule ---------------------------------------------------------------------------------------------

SCHEDULES = (
    (SynchronousConfig(), [1, 1, 3, 3, 3]),
    (MinibatchPipelineConfig(order="prompt"), [1, 1, 3, 3, 3]),
    (OneOffPipelineConfig(), [1, 1, 1, 3, 3]),  # batch 2 was begun while the policy learnt from batch 1
    (AsynchronousConfig(max_staleness=2), [1, 1, 1, 1, 3]),
)


def limits_of(
    config: ScheduleConfig, tmp_path, *, stops_after: int = 5
) -> tuple[list[set[int]], dict[str, torch.Tensor]]:
    """The limits that each iteration learnt from, and the weights at the end of a run that is resumed once."""
    limits: list[set[int]] = []
    tmp_path.mkdir()
    length_schedule, total = two_stages(1, 3, after=2), 5
    items = ShuffledItems(ITEMS, per_iteration=4, seed=0)
    for done, last in ((0, stops_after), (stops_after, total)):
        found = {"goes_on_from": tmp_path, "begins_at": done} if done else {}
        with toy_stages(schedule=config, length_schedule=length_schedule, **found) as stages:
            run_progress = RunProgress(done, total, load_groups(tmp_path, items) if done else {})
            for step, iteration in enumerate(choose_schedule(config, 2)(stages, items, run_progress), start=done + 1):
                groups = iteration.learned.groups
                limits.append({rollout.length_limit for group in groups for rollout in group.rollouts})
                assert all(len(r.last.tokens) <= r.length_limit for group in groups for r in group.rollouts)
                stages.length_schedule.advance(step, groups)
                if step == last:
                    save_groups(iteration.known(), tmp_path)
                    stages.saved().begin_save(tmp_path)
                    assert stages.saved().finish_save(True)
                    weights = dict(stages.actor.export_weights().result())
                    break
        if stops_after == total:
            break
    return limits, weights


@pytest.mark.parametrize(("config", "expected"), SCHEDULES, ids=[config.name for config, _ in SCHEDULES])
def test_a_stage_begins_with_the_next_batch_and_a_resumed_run_decides_alike(config, expected, tmp_path):
    whole, weights = limits_of(config, tmp_path / "whole")
    assert whole == [{limit} for limit in expected]
    resumed, again = limits_of(config, tmp_path / "resumed", stops_after=2)
    assert resumed == whole
    if config.name != "asynchronous":  # which is equal in its requests, not in its weights
        assert all(torch.equal(weights[name], again[name]) for name in weights)


def test_masks_and_weights_read_the_limit_of_each_rollout():
    """Dr. GRPO divides by the limit: two responses alike, of two stages, weigh differently."""
    with toy_stages(algorithm=DrGrpoConfig()) as stages:
        groups = [group_of([1.0, 0.0], limit=limit) for limit in (4, 16)]
        weights = [entry.weight for entry in stages.learn(groups).ledger]
    assert weights[0] == pytest.approx(4 * weights[2])


# --- Overlong filtering --------------------------------------------------------------------------------------------


def with_cut(groups: list[Group], change) -> list[Group]:
    """The groups, of which every third response was cut by its limit and then changed."""
    found: list[Group] = []
    for group in groups:
        rollouts = [
            change(replace(r, turns=(replace(r.last, finish_reason=FinishReason.LENGTH),)), n)
            if n % 3 == 0
            else replace(r, turns=(replace(r.last, finish_reason=FinishReason.STOP),))
            for n, r in enumerate(group.rollouts)
        ]
        found.append(Group(group.item, tuple(rollouts)))
    return found


def as_it_is(rollout, number):
    return rollout


def paid(rollout, number):
    return replace(rollout, reward=replace(rollout.reward, value=5.0 - number))


def other_words(rollout, number):
    tokens = [7 + number] * (1 + number % 3)
    prompt = rollout.last.prompt_tokens.tolist()
    return replace(rollout, turns=(completion(tokens, prompt=prompt, finish_reason=FinishReason.LENGTH),))


def of_another_stage(rollout, number):
    return replace(other_words(rollout, number), length_limit=1 + number)


def learnt_from(change, *, is_filtered: bool) -> dict[str, torch.Tensor]:
    """The weights after one update from the toy task, some of whose responses were cut and changed."""
    with toy_stages(algorithm=GrpoPlusConfig(mask_overlong=is_filtered)) as stages:
        stages.learn(with_cut(stages.collect(ITEMS, 0).result(), change))
        return dict(stages.actor.export_weights().result())


@pytest.mark.parametrize("change", [paid, other_words, of_another_stage])
def test_responses_that_were_cut_move_no_weight_whatever_they_hold(change):
    expected = learnt_from(as_it_is, is_filtered=True)
    found = learnt_from(change, is_filtered=True)
    assert all(torch.equal(found[name], weights) for name, weights in expected.items())
    with toy_stages() as stages:
        start = stages.actor.export_weights().result()
        assert any(not torch.equal(start[name], weights) for name, weights in expected.items())  # the others do


def test_without_the_filter_they_do():
    kept, changed = (learnt_from(change, is_filtered=False) for change in (as_it_is, paid))
    assert any(not torch.equal(changed[name], weights) for name, weights in kept.items())
