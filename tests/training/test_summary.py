"""The lines that end a run, also where verdicts were missing."""

from __future__ import annotations

from autoclave.training.summary import describe

SUMMARY = {
    "heldout_pass1_before": 0.25,
    "heldout_pass1_after": 0.75,
    "heldout_pass1_interval_before": [0.2, 0.3],
    "heldout_pass1_interval_after": [0.7, 0.8],
    "heldout_greedy_before": 0.5,
    "heldout_greedy_after": None,
    "heldout_pass8_before": 0.5,
    "heldout_pass8_after": 0.875,
    "heldout_problems": 10,
    "seconds_sft": 1.0,
    "seconds_rl": 2.0,
    "seconds_evaluation": 3.0,
}


def test_figures_before_and_after():
    lines = describe(SUMMARY).splitlines()
    assert "0.250 [0.200, 0.300] -> 0.750 [0.700, 0.800], +0.500; the intervals do not overlap" in lines[0]
    assert "greedy 0.500 -> -, pass@8 0.500 -> 0.875" in lines[1]


def test_without_verdicts_nothing_is_claimed():
    unknown = SUMMARY | {"heldout_pass1_after": None, "heldout_pass1_interval_after": [None, None]}
    assert "0.250 -> -; too few verdicts to compare" in describe(unknown)
