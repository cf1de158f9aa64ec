"""The account of each rollout: what it earned, what it was compared with, and how much it counted. Pure data."""

import math
from dataclasses import dataclass

import torch

from autoclave.algorithms.advantages import group_statistics
from autoclave.algorithms.columns import Column, Columns
from autoclave.algorithms.packed import row_lengths, row_sums


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Account of one rollout by the algorithm. `Rollout.mask_reason` says why one does not train."""

    reward: float | None
    """The reward behind the advantage: the judge's with what the algorithm added or took; None without a verdict."""
    in_baseline: bool
    """It counts in mean and deviation of its group."""
    group_mean: float | None
    """Mean reward of the baseline of its group; None if no rollout is in it."""
    group_std: float | None
    """Sample deviation of the rewards in the baseline of its group; None for fewer than two."""
    advantage: float | None
    """Mean over its tokens, as the loss has it; None if it does not train."""
    weight: float | None
    """Sum over its tokens: its share in the loss of its optimizer step; None if it does not train."""
    importance: float | None
    """Mean factor on its advantages for the difference between sampler and trainer; None if it was not computed."""


@torch.no_grad()
def ledger(columns: Columns) -> list[LedgerEntry]:
    """The entry of each row.

    Args:
        columns: of all rows of a `learn`, as `Algorithm.prepare` and `Algorithm.correct` gave them. NaN stands where
            they were not asked.
    """
    rewards, row, in_loss, in_baseline = (
        columns[name] for name in (Column.REWARDS, Column.ROW, Column.IN_LOSS, Column.IN_BASELINE)
    )
    num_rows = len(rewards)
    lengths = row_lengths(row, num_rows).clamp(min=1)
    nothing = torch.full((num_rows,), torch.nan, dtype=torch.float64)
    of_group = group_statistics(rewards, columns[Column.GROUP], in_baseline)
    importance = columns.get(Column.IMPORTANCE)
    numbers = {
        "reward": rewards,
        "group_mean": of_group.mean.where(of_group.count > 0, nothing),
        "group_std": of_group.deviation.where(of_group.count > 1, nothing),
        "advantage": (row_sums(columns[Column.ADVANTAGES], row, num_rows) / lengths).where(in_loss, nothing),
        "weight": row_sums(columns[Column.WEIGHTS], row, num_rows).where(in_loss, nothing),
        "importance": nothing if importance is None else row_sums(importance, row, num_rows) / lengths,
    }
    plain = {
        name: [None if math.isnan(each) else each for each in map(float, values)] for name, values in numbers.items()
    }
    return [
        LedgerEntry(in_baseline=bool(counts), **{name: values[index] for name, values in plain.items()})
        for index, counts in enumerate(in_baseline)
    ]
