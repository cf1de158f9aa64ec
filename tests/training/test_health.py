"""Rules over made-up courses of metrics: what raises an alert, what does not, and that each is told once."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import HealthConfig
from autoclave.core import Reward, Status, TaskItem, Verdict
from autoclave.training.health import Health, alerts, overfit_to_sampled_tests
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


def course(*changes: dict[str, float]) -> list[dict[str, float]]:
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
    assert names(course({metric: just_well})) == []
    assert names(course({metric: not_well})) == [alert]


def test_kl_below_the_floor_is_no_spike():
    small = [WELL | {"policy/approx_kl": 1e-6}] * 3
    assert names([*small, WELL | {"policy/approx_kl": 0.009}]) == []
    assert names([*small, WELL | {"policy/approx_kl": 0.011}]) == ["kl_spike/policy/approx_kl"]


def test_one_spike_does_not_hide_the_next():
    assert names(course({"policy/gradient_norm": 1000.0}, {"policy/gradient_norm": 11.0})) == ["gradient_norm_spike"]


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
    assert names(course(later, later, later)) == found
    assert names(course(later, later)) == []  # not yet two windows


def test_responses_that_were_let_become_longer_raise_nothing():
    short, long = {"curriculum/max_new_tokens": 150.0}, {"curriculum/max_new_tokens": 300.0}
    later = {"response_length/mean": 140.0, "reward/mean": 0.4}
    assert names([WELL | short] * 3 + [WELL | long | later] * 3) == []
    assert names([WELL | long] * 3 + [WELL | long | later] * 3) == ["length_without_reward"]


def test_too_short_a_history_raises_nothing():
    wild = dict.fromkeys(WELL, 1e9)
    assert names([]) == names([wild]) == names([WELL, WELL, wild]) == []


@given(st.lists(st.fixed_dictionaries({}, optional={name: st.floats() for name in WELL}), max_size=12))
def test_whatever_was_measured_the_rules_have_an_answer(history: list[dict[str, float]]):
    for alert in alerts(history, CONFIG):
        assert alert.seen
        assert "health." in alert.rule
        assert alert.mend


@given(st.floats(0.5, 2.0), st.integers(1, 40))
def test_a_run_that_is_steady_is_well(scale: float, steps: int):
    assert names([{name: value * scale for name, value in WELL.items()}] * steps) == []


def test_an_alert_is_told_when_it_begins_and_again_when_it_comes_back():
    health = Health(CONFIG)
    low, told = WELL | {"policy/entropy": 0.05}, []
    for row in [*course(), low, low, WELL, low]:
        told.append([alert.name for alert in health.observe(row)])
    assert told == [[], [], [], ["entropy_collapse"], [], [], ["entropy_collapse"]]


def test_a_resumed_run_goes_on_as_if_it_had_not_ended():
    history = course({"policy/entropy": 0.05})
    whole, resumed = Health(CONFIG), Health(CONFIG)
    for row in history:
        whole.observe(row)
    resumed.go_on_from([row | {"policy/reference_kl": None, "step": 1} for row in history])  # null was not finite
    assert resumed.observe(history[-1]) == whole.observe(history[-1]) == []
    assert [row["policy/entropy"] for row in resumed.history] == [row["policy/entropy"] for row in whole.history]


def test_an_alert_says_what_was_seen_the_rule_and_the_mend():
    (alert,) = alerts(course({"policy/gradient_norm": 50.0}), CONFIG)
    assert str(alert) == (
        "gradient_norm_spike: gradient norm 50, its median over 3 steps was 1; rule: at most "
        "health.gradient_norm_spike = 10 times the median. One such step is clipped by optimizer.gradient_clip; if "
        "they go on, lower optimizer.learning_rate."
    )


# --- Tests that were not sampled -----------------------------------------------------------------------------------


def test_accepted_programs_that_fail_other_tests_are_counted():
    texts = ["right", "memorised", "fault", "wrong"]
    group = group_of([1.0, 1.0, 1.0, 0.0], [completion(text=text) for text in texts])
    asked: list[str] = []

    def by_all(item: TaskItem, response: str) -> Future[Reward]:
        asked.append(response)
        return settled(earned({"right": 1.0, "memorised": 0.0, "fault": None}[response]))

    found = overfit_to_sampled_tests([group], by_all)
    assert asked == ["right", "memorised", "fault"]  # what was refused is refused by all tests as well
    assert found == {"overfit_judged": 2.0, "overfit_to_sampled_tests": 0.5}


def test_without_an_accepted_program_there_is_no_share():
    assert overfit_to_sampled_tests([group_of([0.0, None])], lambda item, response: settled(earned(1.0))) == {
        "overfit_judged": 0.0
    }


def test_a_fraction_of_the_tests_is_no_acceptance():
    refused = Reward(0.9, Status.WRONG_ANSWER, {}, Verdict.of(Status.WRONG_ANSWER))
    found = overfit_to_sampled_tests([group_of([1.0])], lambda item, response: settled(refused))
    assert found["overfit_to_sampled_tests"] == 1.0
