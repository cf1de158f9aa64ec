"""The account of each rollout, by hand, and which groups teach nothing."""

from __future__ import annotations

import math

import pytest
import torch

from autoclave.algorithms import batch_metrics, build_algorithm, is_uniform, ledger
from autoclave.config import GrpoPlusConfig, TruncatedCorrectionConfig
from autoclave.core import MaskReason
from tests.training_parts import group_of

COLUMNS = {
    "rewards": torch.tensor([1.0, 0.0, 1.0, math.nan]),
    "group": torch.tensor([0, 0, 0, 1]),
    "in_loss": torch.tensor([True, True, False, False]),
    "row": torch.tensor([0, 0, 1, 1, 2, 3]),
    "old_log_probs": torch.tensor([0.0, math.log(2), 0.0, 0.0, 0.0, 0.0]),
    "sampler_log_probs": torch.zeros(6),
}


def entries(**options):
    algorithm = build_algorithm(GrpoPlusConfig(**options))
    return ledger(algorithm.correct(algorithm.prepare(COLUMNS)))


def test_every_rollout_says_what_it_was_compared_with_and_how_much_it_counted():
    first, second, masked, lost = entries()
    assert (first.reward, first.in_baseline, first.group_mean) == (1.0, True, 0.5)
    assert first.group_std == pytest.approx(math.sqrt(0.5))
    assert (first.advantage, second.advantage) == pytest.approx((math.sqrt(0.5), -math.sqrt(0.5)), abs=1e-5)
    assert (first.weight, second.weight) == (0.5, 0.5)  # two of four trained tokens each
    assert (masked.reward, masked.in_baseline, masked.group_mean) == (1.0, False, 0.5)
    assert (masked.advantage, masked.weight) == (None, None)
    assert (lost.reward, lost.in_baseline, lost.group_mean, lost.group_std) == (None, False, None, None)
    assert [entry.importance for entry in entries()] == [None] * 4


def test_masked_rows_are_in_the_baseline_where_settings_say_so():
    first, _, masked, lost = entries(include_masked_in_baseline=True)
    assert first.group_mean == pytest.approx(2 / 3)
    assert (masked.in_baseline, masked.advantage) == (True, None)
    assert not lost.in_baseline  # no verdict, not in the baseline


def test_a_group_that_masks_shrink_to_one_row_has_no_advantage():
    columns = COLUMNS | {"in_loss": torch.tensor([True, False, False, False])}
    (first, *_) = ledger(build_algorithm(GrpoPlusConfig()).prepare(columns))
    assert (first.advantage, first.group_mean, first.group_std) == (0.0, 1.0, None)


def test_a_correction_is_part_of_the_account():
    first, second, *_ = entries(correction=TruncatedCorrectionConfig(upper=5.0))
    assert (first.importance, second.importance) == pytest.approx((1.5, 1.0))  # tokens 1 and 2
    assert first.advantage == pytest.approx(1.5 * math.sqrt(0.5), abs=1e-5)


def test_what_is_known_of_a_batch_before_it_is_learnt_from():
    columns = {
        "weights": torch.tensor([0.5, 0.5, 0.5, 0.0]), "row": torch.tensor([0, 0, 1, 2]),
        "kl": torch.tensor([1.0, 2.0, 3.0, 99.0]), "importance": torch.tensor([0.0, 1.0, 2.0, 99.0]),
        "returns": torch.tensor([1.0, 2.0, 3.0, 99.0]), "old_values": torch.tensor([1.0, 2.0, 2.0, 99.0]),
    }  # fmt: skip
    assert batch_metrics(columns) == pytest.approx(
        {
            "reward_kl": 2.0,
            "reward_kl_per_response": 3.0,  # 1 + 2, and 3
            "importance_mean": 1.0,
            "importance_max": 2.0,
            "importance_zero_share": 1 / 3,
            "effective_sample_share": 9 / (3 * 5),
            "explained_variance": 1 - (2 / 9) / (2 / 3),  # errors 0, 0, 1; returns 1, 2, 3
        }
    )
    assert batch_metrics(columns | {"weights": torch.zeros(4)}) == {}


@pytest.mark.parametrize(
    ("rewards", "masks", "expected"),
    [
        ([1.0, 1.0], None, True),
        ([1.0, 0.0], None, False),
        ([1.0, None], None, True),
        ([1.0, 0.0], [None, MaskReason.OVERLONG], True),
        ([0.1, 0.1, 0.1], None, True),
    ],
)
def test_a_group_with_equal_rewards_teaches_nothing(rewards, masks, expected):
    assert is_uniform(group_of(rewards, mask_reasons=masks).rollouts) == expected
