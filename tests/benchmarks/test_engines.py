"""What the comparison of engines asks of each side, and how its figures are formed."""

from __future__ import annotations

import pytest
from engines import CASES, FEWEST, GROUP_SIZE, MOST, Measured, build_work, figures_of


def test_requests_stand_in_groups_of_one_prompt_with_ragged_limits(tmp_path):
    case = CASES[""]
    work = build_work(case, tmp_path / "policy", rounds=2)
    groups = [set(work.prompts[start : start + GROUP_SIZE]) for start in range(0, len(work.prompts), GROUP_SIZE)]
    assert [len(group) for group in groups] == [1] * case.prompts
    assert len(work.limits) == len(work.prompts)
    assert FEWEST <= min(work.limits) < max(work.limits) / 10
    assert max(work.limits) <= MOST
    assert max(map(len, work.prompts)) + MOST <= case.model.context


def test_engines_are_compared_round_by_round():
    rounds = {
        "transformers": [{"tokens": 100.0, "step": 1.0, "cpu": 1.0}, {"tokens": 100.0, "step": 4.0, "cpu": 2.0}],
        "vllm": [{"tokens": 100.0, "step": 2.0, "cpu": 1.0}, {"tokens": 100.0, "step": 8.0, "cpu": 1.0}],
    }
    found = Measured(rounds, dict.fromkeys(rounds, 10.0))
    assert found.over("vllm", "transformers", "step") == [0.5, 0.5]
    figures = figures_of(found)
    assert figures["vllm_over_transformers"] == 0.5
    assert figures["transformers_tokens_per_cpu_s"] == pytest.approx(75.0)
