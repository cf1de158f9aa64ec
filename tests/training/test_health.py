"""Rules over made-up courses of metrics: what raises an alert, what does not, and that each is told once."""

from __future__ import annotations

import math
import random
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import (
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    HealthConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
    TrainConfig,
    load,
    parse_override,
)
from autoclave.core import ConfigError, Reward, Rollout, Status, Verdict
from autoclave.training.health import WATCHED, Health, alerts, overfit_to_sampled_tests
from autoclave.training.metrics import iteration_metrics
from tests.training.toy import ITEMS, is_even, toy_stages
from tests.training_parts import completion, earned, group_of, settled

WELL = {
    "policy/gradient_norm": 1.0,
    "policy/entropy": 1.0,
    "policy/approx_kl": 0.001,
    "policy/reference_kl": 0.002,
    "reward/mean": 0.5,
    "response_length/mean": 100.0,
}
CONFIG = HealthConfig(window=3)


def run_progress(*changes: dict[str, float]) -> list[dict[str, float]]:
    """Three steps that are well, then one for each of `changes`."""
    return [WELL] * 3 + [WELL | change for change in changes]


def names(history: list[dict[str, float]], config: HealthConfig = CONFIG) -> list[str]:
    return [alert.name for alert in alerts(history, config)]


@pytest.mark.parametrize(
    ("metric", "just_well", "not_well", "alert"),
    [
        ("policy/gradient_norm", 10.0, 10.1, "gradient_norm_spike"),
        ("policy/approx_kl", 0.01, 0.0101, "kl_spike/policy/approx_kl"),
        ("policy/reference_kl", 0.02, 0.0201, "kl_spike/policy/reference_kl"),
        ("policy/entropy", 0.1, 0.099, "entropy_collapse"),
        ("policy/entropy", 2.0, 2.01, "entropy_growth"),
        ("overfit_to_sampled_tests", 0.05, 0.051, "overfit_to_sampled_tests"),
    ],
)
def test_an_alert_begins_beyond_its_limit(metric: str, just_well: float, not_well: float, alert: str):
    assert names(run_progress({metric: just_well})) == []
    assert names(run_progress({metric: not_well})) == [alert]


@pytest.mark.parametrize(
    ("metric", "healthy", "limit_broken", "alert"),
    [
        ("policy/approx_kl", 0.1, 0.101, "kl_limit/policy/approx_kl"),
        ("policy/reference_kl", 2.0, 2.1, "kl_limit/policy/reference_kl"),
        ("policy/relative_update", 0.02, 0.021, "update_limit"),
        ("mismatch/mean", 0.2, 0.21, "mismatch_limit/mismatch/mean"),
        ("policy/log_prob_mismatch", 10.0, 10.1, "mismatch_limit/policy/log_prob_mismatch"),
        ("truncated_share", 0.8, 0.81, "truncation_limit"),
        ("masked_share", 0.9, 0.91, "masked_limit"),
        ("policy/entropy", 0.001, 0.0009, "entropy_floor"),
        ("policy/entropy", 4.0, 4.1, "entropy_ceiling"),
        ("policy/changed_share", 0.5, 0.49, "rate_below_format"),
        ("credit/reward_verdict", 0.01, 0.0, "reward_contradicts_verdict"),
        ("credit/reward_verdict", 0.01, -1.0, "reward_contradicts_verdict"),
        ("credit/advantage_reward", 0.2, 0.19, "advantage_contradicts_reward"),
        ("credit/gradient_advantage", 0.5, 0.49, "gradient_contradicts_advantage"),
        ("credit/raised_share", 0.02, 0.01, "nothing_raised"),
        ("credit/penalty", 0.1, 0.11, "penalty_limit"),
    ],
)
def test_a_limit_holds_from_the_first_step(metric: str, healthy: float, limit_broken: float, alert: str):
    assert names([WELL | {metric: healthy}]) == []
    assert names([WELL | {metric: limit_broken}]) == [alert]


@pytest.mark.parametrize(
    "dead",
    [{"policy/gradient_norm": 0.0}, {"policy/gradient_norm": None}, {"reward/variance": 0.0}, {"masked_share": 1.0}],
    ids=str,
)
def test_steps_in_which_nothing_is_trained_stop_the_run_after_so_many(dead: dict):
    config = HealthConfig(dead_steps=4, masked_limit=1.0)
    row = {name: value for name, value in (WELL | dead).items() if value is not None}
    (alert,) = alerts([WELL] + [row] * 4, config)
    assert (alert.name, alert.action(config)) == ("nothing_trained", "stop")
    assert alerts([WELL] + [row] * 3, config) == alerts([row] * 3 + [WELL] + [row] * 3, config) == []


def test_a_reward_that_falls_to_nothing_is_reported_at_once_and_chance_is_not():
    def rewarded(*means: float, error: float = 0.05) -> list[dict[str, float]]:
        return [WELL | {"reward/mean": mean, "reward/standard_error": error} for mean in means]

    assert names(rewarded(0.5, 0.0)) == ["reward_collapse"]
    assert names(rewarded(*[0.5] * 20, 0.3, 0.26)) == []
    assert names(rewarded(*[0.5] * 20, 0.24, 0.2, 0.2)) == ["reward_collapse"]  # three are more than one
    assert names(rewarded(0.5, 0.0, error=0.3)) == []  # few problems: chance


def test_noise_around_a_low_reward_is_no_collapse():
    draw = random.Random(0)
    for _ in range(40):
        means = [sum(draw.random() < 0.05 for _ in range(64)) / 64 for _ in range(50)]
        history = [WELL | {"reward/mean": mean, "reward/standard_error": math.sqrt(0.05 * 0.95 / 64)} for mean in means]
        assert not any("reward_collapse" in names(history[: n + 1]) for n in range(len(history)))


def test_a_policy_that_stands_still_is_reported_after_a_window_and_rounding_is_not():
    still = WELL | {"policy/approx_kl": 1e-10, "policy/reference_kl": 0.0}
    assert names([still] * 3) == ["policy_stands_still"]
    assert names([still] * 2) == names([WELL, still, still]) == []
    assert names([still | {"policy/approx_kl": 1e-14}] * 3) == []  # one minibatch per step


def test_a_falling_rate_in_float32_is_not_below_the_format():
    last = [WELL | {"policy/changed_share": share} for share in (0.9, 0.7, 0.3)]
    assert names(last) == []


def test_every_alert_has_an_action_and_one_of_an_unknown_rule_is_refused():
    wild = [WELL | dict.fromkeys(WATCHED, 1000000000.0)] * 9
    tame = [WELL | dict.fromkeys(WATCHED, -1000000000.0)] * 9
    found = {alert.name.partition("/")[0] for alert in [*alerts(wild, CONFIG), *alerts(tame, CONFIG)]}
    assert {alert.action(CONFIG) for alert in alerts(tame, CONFIG)} <= {"alert", "stop"}
    assert len(found) > 10
    with pytest.raises(ConfigError, match=r"did you mean health\.actions\.kl_limit"):
        load(TrainConfig, None, [parse_override("health.actions.kl_limits=stop")])


def test_kl_below_the_floor_is_no_spike():
    small = [WELL | {"policy/approx_kl": 1e-6}] * 3
    assert names([*small, WELL | {"policy/approx_kl": 0.009}]) == []
    assert names([*small, WELL | {"policy/approx_kl": 0.011}]) == ["kl_spike/policy/approx_kl"]


def test_one_spike_does_not_hide_the_next():
    assert names(run_progress({"policy/gradient_norm": 1000.0}, {"policy/gradient_norm": 11.0})) == [
        "gradient_norm_spike"
    ]


def test_entropy_is_compared_with_the_first_steps_however_slowly_it_falls():
    falling = [WELL | {"policy/entropy": 0.97**n} for n in range(100)]
    first = next(n for n in range(len(falling)) if names(falling[: n + 1]))
    mean_of_the_first = (1 + 0.97 + 0.97**2) / 3
    assert 0.97**first < 0.1 * mean_of_the_first <= 0.97 ** (first - 1)


@pytest.mark.parametrize(
    ("length", "reward", "found"),
    [
        (131.0, 0.5, ["length_without_reward"]),
        (131.0, 0.4, ["length_without_reward"]),
        (131.0, 0.51, []),
        (130.0, 0.4, []),
    ],
)
def test_length_may_grow_with_reward(length: float, reward: float, found: list[str]):
    later = {"response_length/mean": length, "reward/mean": reward}
    assert names(run_progress(later, later, later)) == found
    assert names(run_progress(later, later)) == []  # not yet two windows


def test_responses_that_were_let_become_longer_raise_nothing():
    short, long = {"length_schedule/max_new_tokens": 150.0}, {"length_schedule/max_new_tokens": 300.0}
    later = {"response_length/mean": 140.0, "reward/mean": 0.4}
    assert names([WELL | short] * 3 + [WELL | long | later] * 3) == []
    assert names([WELL | long] * 3 + [WELL | long | later] * 3) == ["length_without_reward"]


def test_without_a_window_nothing_is_compared_with_one():
    wild = WELL | {"policy/gradient_norm": 1e9, "policy/approx_kl": 0.09, "policy/entropy": 3.9}
    assert names([]) == names([wild]) == names([WELL, WELL, wild]) == []


@given(st.lists(st.fixed_dictionaries({}, optional={name: st.floats(width=32) for name in WELL}), max_size=12))
def test_whatever_was_measured_the_rules_have_an_answer(history: list[dict[str, float]]):
    for alert in alerts(history, CONFIG):
        assert alert.seen
        assert "health." in alert.rule
        assert alert.fix


@given(st.floats(0.5, 2.0), st.integers(1, 40))
def test_a_run_that_is_steady_is_well(scale: float, steps: int):
    assert names([{name: value * scale for name, value in WELL.items()}] * steps) == []


def test_an_alert_is_told_when_it_begins_and_again_when_it_comes_back():
    health = Health(CONFIG)
    low, told = WELL | {"policy/entropy": 0.05}, []
    for row in [*run_progress(), low, low, WELL, low]:
        told.append([alert.name for alert in health.observe(row)])
    assert told == [[], [], [], ["entropy_collapse"], [], [], ["entropy_collapse"]]


def test_a_resumed_run_goes_on_as_if_it_had_not_ended():
    history = run_progress({"policy/entropy": 0.05})
    whole, resumed = Health(CONFIG), Health(CONFIG)
    for row in history:
        whole.observe(row)
    resumed.go_on_from([row | {"policy/reference_kl": None, "step": 1} for row in history])  # null was not finite
    assert resumed.observe(history[-1]) == whole.observe(history[-1]) == []
    assert [row["policy/entropy"] for row in resumed.history] == [row["policy/entropy"] for row in whole.history]


def test_an_alert_says_what_was_seen_the_rule_and_the_fix():
    (alert,) = alerts(run_progress({"policy/gradient_norm": 50.0}), CONFIG)
    assert str(alert) == (
        "gradient_norm_spike: gradient norm 50, its median over 3 steps was 1; rule: at most "
        "health.gradient_norm_spike = 10 times the median. One such step is clipped by optimizer.gradient_clip; if "
        "they go on, lower optimizer.learning_rate."
    )


NINE = [
    PpoConfig(),
    GrpoConfig(),
    GrpoPlusConfig(mask_overlong=False),
    DapoConfig(mask_overlong=False),
    DrGrpoConfig(),
    RlooConfig(),
    ReinforcePlusPlusConfig(),
    GspoConfig(),
    CispoConfig(),
]
OF_THE_TOY = {"truncation_limit", "entropy_ceiling"}
"""Alerts of random weights that answer with three tokens at most."""


@pytest.mark.parametrize("algorithm", NINE, ids=lambda algorithm: algorithm.name)
def test_a_healthy_run_of_each_algorithm_raises_nothing(algorithm):
    health, found = Health(HealthConfig()), set()
    with toy_stages(is_even, steps=4, algorithm=algorithm, learning_rate=1e-3) as stages:
        for step in range(2):
            batch = stages.collect(ITEMS, step)
            learned = stages.learn(batch.result())
            stages.publish(step + 1)
            found |= {alert.name for alert in health.observe(iteration_metrics(batch.times, learned))}
    assert found - OF_THE_TOY == set()
    assert {"credit/advantage_reward", "credit/gradient_advantage"} <= health.history[0].keys()


# --- Tests that were not sampled -----------------------------------------------------------------------------------


def test_accepted_programs_that_fail_other_tests_are_counted():
    texts = ["right", "memorised", "fault", "wrong"]
    group = group_of([1.0, 1.0, 1.0, 0.0], [completion(text=text) for text in texts])
    asked: list[str] = []

    def by_all(rollout: Rollout) -> Future[Reward]:
        asked.append(rollout.last.text)
        return settled(earned({"right": 1.0, "memorised": 0.0, "fault": None}[rollout.last.text]))

    found = overfit_to_sampled_tests([group], by_all)
    assert asked == ["right", "memorised", "fault"]  # what was refused is refused by all tests as well
    assert found == {"overfit_judged": 2.0, "overfit_to_sampled_tests": 0.5}


def test_without_an_accepted_program_there_is_no_share():
    assert overfit_to_sampled_tests([group_of([0.0, None])], lambda rollout: settled(earned(1.0))) == {
        "overfit_judged": 0.0
    }


def test_a_fraction_of_the_tests_is_no_acceptance():
    refused = Reward(0.9, Status.WRONG_ANSWER, {}, Verdict.of(Status.WRONG_ANSWER))
    found = overfit_to_sampled_tests([group_of([1.0])], lambda rollout: settled(refused))
    assert found["overfit_to_sampled_tests"] == 1.0
