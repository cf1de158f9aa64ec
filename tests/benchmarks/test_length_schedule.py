"""The experiment on lengths: its arms can be run, and how the costs of two runs are compared."""

from __future__ import annotations

import length_schedule
import pytest
from length_schedule import LONG, NAMES, QUICK, RECIPE, SHORT, arms, cost_ratio, cost_until, heldout_curve, smoothed

from autoclave.config import ArithmeticConfig, TrainConfig, load, parse_override
from autoclave.models import build_tiny_policy
from autoclave.training.sft import encode_demonstrations
from autoclave_environments.arithmetic import arithmetic_demonstrations
from runs import FinishedRun


def run(arm: str, passes: list[float], *, step_s: float = 1.0, seed: int = 0) -> FinishedRun:
    """A run that was evaluated before and after each step."""
    config = TrainConfig(seed=seed)
    families = {"operations-2": {"pass@1": 0.5}}
    steps = [
        {"step": n, "time/step_s": step_s, "sampled_tokens": 100.0 * step_s, "reward/mean": 0.5, "truncated_share": 0.0}
        | {"response_length/mean": 20.0}
        for n in range(1, len(passes))
    ]
    evaluations = [
        {"step": n, "pass@1": value, "response_length/mean": 30.0, "truncated_share": 0.1, "families": families}
        for n, value in enumerate(passes)
    ]
    return FinishedRun(arm, config, {}, steps, evaluations, [])


def test_the_cost_of_a_reward_is_read_off_the_line_between_two_evaluations():
    curve = [(0.0, 0.2), (10.0, 0.4), (20.0, 0.3), (30.0, 0.6)]
    assert cost_until(curve, 0.3) == pytest.approx(5.0)
    assert cost_until(curve, 0.5) == pytest.approx(20 + 10 * 2 / 3)
    assert cost_until(curve, 0.1) == 0.0


def test_a_run_that_learns_alike_at_half_the_cost_has_a_ratio_of_a_half():
    passes = [0.2, 0.3, 0.4, 0.5, 0.6]
    ours, theirs = run("stages", passes, step_s=2.0), run("fixed", passes, step_s=4.0)
    assert cost_ratio(ours, theirs, lambda row: row["time/step_s"]) == pytest.approx(0.5)
    better = run("stages", [0.2, 0.4, 0.6, 0.8, 1.0], step_s=4.0)
    assert cost_ratio(better, theirs, lambda row: row["time/step_s"]) < 1


def test_a_held_out_curve_is_smoothed_over_neighbours_and_begins_where_it_began():
    curve = heldout_curve(run("fixed", [0.0, 0.3, 0.6, 0.9]), lambda row: row["time/step_s"])
    assert smoothed(curve) == [(0.0, 0.0), (2.0, pytest.approx(0.3)), (3.0, pytest.approx(0.6))]


def test_figures_are_means_over_seeds_and_ratios_are_of_equal_seeds():
    runs = [run("fixed", [0.2, 0.6], step_s=4.0), run("stages", [0.2, 0.6], step_s=3.0)]
    figures = length_schedule.figures_of([*runs, run("stages", [0.2, 0.8], seed=1)])
    assert figures["stages_heldout_pass1"] == pytest.approx(0.7)
    assert figures["lengthening_wallclock_ratio"] == pytest.approx(0.75)
    assert figures["lengthening_token_ratio"] == pytest.approx(0.75)
    assert "stages_without_filter_reward_end" not in figures
    assert length_schedule.figures_of(runs[:1])["lengthening_wallclock_ratio"] is None
    assert len(length_schedule.table(runs).splitlines()) == 4


def test_the_short_window_cuts_a_good_part_of_what_the_warm_start_imitates_and_the_long_one_nothing():
    config = load(TrainConfig, RECIPE).config
    assert isinstance(config.problems, ArithmeticConfig)
    written = arithmetic_demonstrations(config.problems, config.sft.model_copy(update={"demonstrations": 600}))
    texts = [f"{each.messages[0]['content']}\n{each.response}" for each in written]
    policy = build_tiny_policy(config.model.tiny, texts, seed=0, device="cpu")
    lengths = [len(response) for _, response in encode_demonstrations(policy, written)]
    assert 0.2 < sum(length > SHORT for length in lengths) / len(lengths) < 0.5
    assert max(lengths) <= LONG


@pytest.mark.parametrize("changes", [(), QUICK], ids=["whole", "quick"])
def test_every_arm_has_settings_that_the_recipe_takes(changes):
    configs = {
        arm.name: load(TrainConfig, RECIPE, [parse_override(text) for text in (*changes, *arm.settings)]).config
        for arm in arms(2 if changes else 60)
    }
    assert tuple(configs) == NAMES
    assert {config.longest_trained for config in configs.values()} == {64}
    assert {config.longest_evaluated for config in configs.values()} == {128}
