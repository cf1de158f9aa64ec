"""Experiments of several training runs: what is skipped, what is refused, and how their figures are formed."""

from __future__ import annotations

import gzip
import json
from argparse import Namespace
from pathlib import Path

import pytest
from ablation import ARMS, curves_of, means_of_parts, write_curves

import algorithms
from autoclave.config import TrainConfig, dump, load, parse_override
from runs import RECIPE, Arm, FinishedRun, run_arms

ARM = Arm("dapo", ("algorithm.name=dapo",))
SUMMARY = {
    "heldout_pass1_before": 0.25,
    "heldout_pass1_interval_before": [0.2, 0.3],
    "heldout_pass1_after": 0.5,
    "heldout_pass1_interval_after": [0.45, 0.55],
    "heldout_greedy_before": 0.3,
    "heldout_greedy_after": 0.6,
    "seconds_rl": 12.0,
}


def options(out: Path, **changes: object) -> Namespace:
    return Namespace(
        **{"quick": False, "tiny": False, "steps": 2, "seeds": [3], "only": ["dapo"], "out": out} | changes
    )


def finished(out: Path, *settings: str) -> Path:
    """The folder of a run of `ARM` with seed 3 and two steps, as training leaves it."""
    folder = out / "dapo-seed-3"
    (folder / "rollouts").mkdir(parents=True)
    changes = ("steps=2", "name=dapo", "seed=3", *ARM.settings, *settings)
    config = load(TrainConfig, RECIPE, [parse_override(text) for text in changes]).config
    (folder / "config.yaml").write_text(dump(config))
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    rows = [
        {"kind": "train", "step": step, "time": 0.0, "groups/resampled": 3.0, "reward/mean": step / 4}
        | {"response_length/mean": 10.0 * step}
        for step in (1, 2)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in (1, 2):
        with gzip.open(folder / "rollouts" / f"step-{step:06d}.jsonl.gz", "wt") as file:
            for log_probs in ([-1.0, -2.0], [-3.0 * step]):
                file.write(json.dumps({"sampler_log_probs": log_probs}) + "\n")
    return folder


def test_a_finished_run_is_read_and_not_run_again(tmp_path: Path):
    finished(tmp_path)
    (run,) = run_arms([ARM], options(tmp_path))
    assert (run.arm, run.seed) == ("dapo", 3)
    assert run.gain == 0.25
    assert run.rises
    assert run.entropies == [2.0, 3.0]  # (1 + 2 + 3) / 3 and (1 + 2 + 6) / 3
    assert run.num_sampled == 2 * 64 * 8 + 8 * 6  # what is kept, and six groups that were replaced


def test_a_folder_of_other_settings_is_refused_before_anything_runs(tmp_path: Path):
    finished(tmp_path, "algorithm.max_resamples=0")
    with pytest.raises(SystemExit, match="other settings"):
        list(run_arms([ARM], options(tmp_path)))


def test_arms_that_are_not_asked_for_do_not_run(tmp_path: Path):
    assert list(run_arms([Arm("grpo", ()), ARM], options(tmp_path, only=[]))) == []


def test_every_arm_has_settings_that_the_recipe_takes():
    for arm in (*algorithms.ARMS, *ARMS):
        load(TrainConfig, RECIPE, [parse_override(text) for text in arm.settings])
    assert {arm.name for arm in algorithms.ARMS} == set(algorithms.NAMES)
    assert len(algorithms.NAMES) == 9


@pytest.fixture
def run(tmp_path: Path) -> FinishedRun:
    finished(tmp_path)
    (found,) = run_arms([ARM], options(tmp_path))
    return found


def test_an_algorithm_rises_if_it_does_with_every_seed(run: FinishedRun):
    overlapping = {**run.summary, "heldout_pass1_interval_after": [0.3, 0.55]}
    flat = FinishedRun("rloo", run.config, overlapping, run.steps, run.evaluations, run.entropies)
    figures = algorithms.figures_of([run, run, flat])
    assert (figures["algorithms"], figures["algorithms_rising"]) == (2, 1)
    assert figures["dapo_gain"] == figures["rloo_gain"] == 0.25
    assert len(algorithms.table([run, flat]).splitlines()) == 4


def test_curves_are_written_as_a_table(run: FinishedRun, tmp_path: Path):
    write_curves([run], tmp_path / "curves.csv")
    assert curves_of(run) == {"reward": [0.25, 0.5], "entropy": [2.0, 3.0], "length": [10.0, 20.0]}
    assert (tmp_path / "curves.csv").read_text().splitlines() == [
        "run,seed,step,reward,entropy,length",
        "dapo,3,1,0.25,2.0,10.0",
        "dapo,3,2,0.5,3.0,20.0",
    ]


@pytest.mark.parametrize(
    ("curve", "means"),
    [
        ([1, 3, 5, 7, 9, 11, 13, 15, 17, 19], [2, 6, 10, 14, 18]),
        ([1, None, None, None, None, None, 3, 5, 7, 9], [1, None, None, 4, 8]),
        ([], [None] * 5),
    ],
)
def test_a_curve_is_summed_up_by_the_means_of_its_fifths(curve, means):
    assert means_of_parts(curve) == means
