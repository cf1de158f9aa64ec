"""From judged groups to the columns that an update reads. Pure functions around `Algorithm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm
from autoclave.core import Group
from autoclave.core.rollout import FloatArray
from autoclave.workers import Batch


def mask_groups(algorithm: Algorithm, groups: Sequence[Group]) -> list[Group]:
    """The same groups, with a reason on every rollout that does not train."""
    masked = iter(algorithm.mask([rollout for group in groups for rollout in group.rollouts]))
    return [Group(group.item, tuple(next(masked) for _ in group.rollouts)) for group in groups]


def with_advantages(algorithm: Algorithm, batch: Batch) -> Batch:
    """`batch` with the columns `advantages` and `weights` (N,), and `computes` (B,): rows that can move the policy."""
    columns = _tensors(batch)
    advantages = algorithm.advantages(columns)
    weights = torch.zeros(len(advantages))
    for number in range(int(batch.rows["minibatch"].max(initial=-1)) + 1):
        member = torch.from_numpy(batch.rows["minibatch"] == number)
        tokens = member[columns["row"]]
        weights[tokens] = algorithm.weights(columns["row"], columns["trains"] & member)[tokens]
    computes = algorithm.rows_to_compute({**columns, "advantages": advantages})
    return batch.with_responses(advantages=advantages.float().numpy(), weights=weights.numpy()).with_rows(
        computes=computes.numpy()
    )


def row_advantages(batch: Batch) -> np.ndarray:
    """(B,) float64: the mean advantage of each rollout's tokens; 0 for an empty response."""
    total = np.bincount(batch.response_rows, weights=batch.responses["advantages"], minlength=len(batch))
    return total / np.maximum(batch.response_lengths, 1)


def trainer_log_probs(whole: Batch, computed: Batch) -> list[FloatArray | None]:
    """For each rollout of `whole` the (T,) `old_log_probs` of its response; None if it was not computed.

    `computed` are the rows of `whole` that its column `computes` chose, in order.
    """
    ends = np.cumsum(computed.response_lengths)[:-1]
    found = iter(np.split(computed.responses["old_log_probs"], ends))
    return [next(found) if computes else None for computes in whole.rows["computes"]]


def _tensors(batch: Batch) -> Mapping[str, Tensor]:
    columns = {**batch.rows, **batch.responses, "row": batch.response_rows}
    return {name: torch.from_numpy(column) for name, column in columns.items()}
