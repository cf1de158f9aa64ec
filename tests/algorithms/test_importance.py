from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import masked_importance, truncated_importance

ROW = torch.tensor([0, 0, 1])
OLD = torch.tensor([2.0, 0.5, 4.0]).log()  # ratios 2, 1/2 in one response, 4 in the other
SAMPLER = torch.zeros(3)
LEVELS = st.sampled_from(["token", "sequence", "geometric"])


@pytest.mark.parametrize(
    ("level", "expected"), [("token", [2.0, 0.5, 3.0]), ("sequence", [1.0, 1.0, 3.0]), ("geometric", [1.0, 1.0, 3.0])]
)
def test_truncated_factors_by_hand(level, expected):
    assert truncated_importance(OLD, SAMPLER, ROW, level=level, upper=3.0).tolist() == pytest.approx(expected)


def test_the_geometric_level_does_not_grow_with_length():
    longer = torch.full((8,), math.log(1.1))
    row = torch.zeros(8, dtype=torch.int64)
    factors = [
        truncated_importance(longer, torch.zeros(8), row, level=level, upper=100.0)[0].item()
        for level in ("sequence", "geometric")
    ]
    assert factors == pytest.approx([1.1**8, 1.1])


@pytest.mark.parametrize(
    ("level", "expected"), [("token", [0.0, 0.5, 0.0]), ("sequence", [1.0, 1.0, 0.0]), ("geometric", [1.0, 1.0, 0.0])]
)
def test_masked_factors_by_hand(level, expected):
    found = masked_importance(OLD, SAMPLER, ROW, level=level, lower=0.4, upper=1.5)
    assert found.tolist() == pytest.approx(expected)


@given(st.integers(0, 10_000), LEVELS, st.floats(1, 5))
def test_factors_are_bounded_and_equal_within_a_response_but_for_tokens(make_batch, seed, level, upper):
    batch = make_batch(seed)
    columns = (batch["old_log_probs"], batch["sampler_log_probs"], batch["row"])
    truncated = truncated_importance(*columns, level=level, upper=upper)
    masked = masked_importance(*columns, level=level, lower=1 / upper, upper=upper)
    assert ((truncated > 0) & (truncated <= upper)).all()
    assert ((masked == 0) | ((masked >= 1 / upper) & (masked <= upper))).all()
    inside = masked > 0
    assert torch.equal(masked[inside], truncated[inside])
    if level != "token":
        for row in batch["row"].unique():
            assert len(truncated[batch["row"] == row].unique()) == 1


@given(LEVELS, st.sampled_from([-1e30, 1e30, -800.0, 800.0]))
def test_no_log_probs_make_a_factor_infinite(level, extreme):
    found = truncated_importance(torch.tensor([extreme]), torch.zeros(1), torch.tensor([0]), level=level, upper=1e9)
    assert found.isfinite().all()


def test_equal_probabilities_need_no_correction():
    for level in ("token", "sequence", "geometric"):
        assert truncated_importance(OLD, OLD, ROW, level=level, upper=2.0).tolist() == [1.0] * 3


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"sampler_log_probs \(2,\) and row \(3,\)"):
        truncated_importance(OLD, torch.zeros(2), ROW, level="token", upper=2.0)
