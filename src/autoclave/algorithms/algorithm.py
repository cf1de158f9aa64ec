"""What an algorithm is: a frozen, picklable list of choices, and the five questions that training asks of it.

Training does not know which algorithm it runs. For each optimizer step it asks, in this order:

    rollouts = algorithm.mask(rollouts)             which do not train
    advantages = algorithm.advantages(columns)      (N,), from what was sampled and earned
    weights = algorithm.weights(row, trains)        (N,), before the step is split
    compute = algorithm.rows_to_compute(columns)    (B,), rows that can move the policy
    loss = algorithm.loss(columns)                  per micro-batch; losses of micro-batches add up

Data comes in named columns (`Column`), and each choice names the columns that it reads. So a new algorithm is a new
list of choices; one that needs something new (values of a critic, log-probs of the sampler) adds a column, and nothing
that exists changes. `reads` says what must be computed for the algorithm, and so which workers a run has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import torch
from torch import Tensor

from autoclave.algorithms.advantages import rows_with_signal
from autoclave.algorithms.diagnostics import Diagnostics, observe
from autoclave.algorithms.losses import TokenLoss
from autoclave.core.rollout import Rollout

Result = TypeVar("Result")
RolloutFilter = Callable[[Sequence[Rollout]], tuple[Rollout, ...]]
Weighting = Callable[[Tensor, Tensor], Tensor]
Columns = Mapping[str, Tensor]


class Column(StrEnum):
    """The columns of a packed batch that algorithms read. Functions that read a column have a parameter of its name."""

    REWARDS = "rewards"
    """(B,) float; anything, NaN included, where there is no verdict."""
    GROUP = "group"
    """(B,) int64: rows with one number are compared with each other."""
    TRAINS = "trains"
    """(B,) bool: the row is not masked."""
    ROW = "row"
    """(N,) int64: the rollout of each token, as an index into the columns of B."""
    ADVANTAGES = "advantages"
    """(N,) float: as `Algorithm.advantages` gave them."""
    WEIGHTS = "weights"
    """(N,) float32: as `Algorithm.weights` gave them; 0 where a token does not train."""
    LOG_PROBS = "log_probs"
    """(N,) float, natural logarithms at the sampling temperature, of the policy that learns; carries the gradient."""
    OLD_LOG_PROBS = "old_log_probs"
    """(N,) float: the same of the policy at the start of the step, by the trainer."""
    REFERENCE_LOG_PROBS = "reference_log_probs"
    """(N,) float: the same of the reference policy."""
    ENTROPY = "entropy"
    """(N,) float, nats, of the policy that learns; carries the gradient."""


@dataclass(frozen=True, slots=True)
class ColumnFunction(Generic[Result]):
    """A pure function with its options bound (`functools.partial`), and the columns that it is called with by name."""

    function: Callable[..., Result]
    reads: tuple[Column, ...]

    def __call__(self, columns: Columns) -> Result:
        """The function's answer.

        Raises:
            ValueError: a column that it reads is missing.
        """
        return self.function(**_read(columns, self.reads))


@dataclass(frozen=True, slots=True)
class LossTerm:
    """One summand of a loss. Of the columns it may read those of N tokens; it never sees tokens that do not train."""

    name: str
    """Its total is the metric `loss_<name>`."""
    compute: ColumnFunction[TokenLoss]
    is_zero_without_advantage: bool
    """Loss and gradient are 0 wherever the advantage is 0."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The share of a micro-batch in the loss of an optimizer step: `total` () carries the gradient."""

    total: Tensor
    diagnostics: Diagnostics


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A choice of filters, advantage, weighting and loss terms. Stateless; equal inputs give equal outputs."""

    name: str
    filters: tuple[RolloutFilter, ...]
    """Applied one after the other; the first reason to mask a rollout stays."""
    advantage: ColumnFunction[Tensor]
    """Gives (N,)."""
    weighting: Weighting
    """From row (N,) and trains (B,) to weights (N,)."""
    terms: tuple[LossTerm, ...]
    """At least one; the loss is their sum."""

    @property
    def reads(self) -> frozenset[Column]:
        """Every column that advantage or loss reads."""
        return frozenset(self.advantage.reads).union(*(term.compute.reads for term in self.terms))

    @property
    def needs_reference(self) -> bool:
        """Log-probs of a reference policy are read."""
        return Column.REFERENCE_LOG_PROBS in self.reads

    @property
    def needs_entropy(self) -> bool:
        """Entropies that carry a gradient are read."""
        return Column.ENTROPY in self.reads

    def mask(self, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts of an optimizer step or more, in the same order, with a reason where one does not train."""
        masked = tuple(rollouts)
        for rollout_filter in self.filters:
            masked = rollout_filter(masked)
        return masked

    def advantages(self, columns: Columns) -> Tensor:
        """(N,), without gradient, from whole groups. 0 for rows that do not train.

        Raises:
            ValueError: a column of `advantage.reads` is missing, or columns do not fit each other.
        """
        with torch.no_grad():
            return self.advantage(columns)

    def weights(self, row: Tensor, trains: Tensor) -> Tensor:
        """(N,) float32: the share of each token in the loss. `row` (N,) and `trains` (B,) of a whole optimizer step."""
        return self.weighting(row, trains)

    def rows_to_compute(self, columns: Columns) -> Tensor:
        """(B,) bool: rows whose loss can have a gradient. The others may be left out of every micro-batch.

        Reads `advantages`, `row` and `trains`. Weights stay as they were: a row that is left out still counts in the
        mean, it only needs no forward pass. Metrics are then means over the tokens that were computed.
        """
        found = _read(columns, (Column.ADVANTAGES, Column.ROW, Column.TRAINS))
        if all(term.is_zero_without_advantage for term in self.terms):
            return rows_with_signal(**found)
        return found[Column.TRAINS]

    def loss(self, columns: Columns, *, observed: Columns | None = None) -> StepLoss:
        """The share of some rows in the loss of their optimizer step.

            total = sum over terms, sum over tokens of weight x loss of the token

        Args:
            columns: `weights` and what the terms read, (N,) each, of whole rows. Tokens of weight 0 are not looked at:
                whatever they hold, their gradient is exactly 0.
            observed: more (N,) to be averaged over trained tokens, by the name of the metric.

        Returns:
            The total, which adds up over parts of a step to the same number for every split; and diagnostics for
            `step_metrics`: `loss`, `loss_<term>`, what the terms observe, and `observed`.

        Raises:
            ValueError: a column is missing, or columns do not have one length.
        """
        names = {Column.WEIGHTS}.union(*(term.compute.reads for term in self.terms))
        selected = _trained_tokens(_read(columns, names), columns[Column.WEIGHTS])
        means = _trained_tokens(observed or {}, columns[Column.WEIGHTS])
        parts = {term.name: term.compute(selected) for term in self.terms}
        totals = {f"loss_{name}": (selected[Column.WEIGHTS] * part.loss).sum() for name, part in parts.items()}
        total = torch.stack(list(totals.values())).sum()
        means |= {name: values for part in parts.values() for name, values in part.means.items()}
        maxima = {name: values for part in parts.values() for name, values in part.maxima.items()}
        return StepLoss(total, observe({"loss": total} | totals, means, maxima))


def _read(columns: Columns, names: Collection[Column]) -> dict[str, Tensor]:
    """The columns of these names; ValueError if one is missing."""
    missing = sorted({name.value for name in names if name not in columns})
    if missing:
        raise ValueError(f"the batch lacks {', '.join(missing)}; it has {', '.join(sorted(columns))}")
    return {name.value: columns[name] for name in names}


def _trained_tokens(columns: Columns, weights: Tensor) -> dict[str, Tensor]:
    """Of each column the tokens that train; ValueError if one is not (N,)."""
    for name, values in columns.items():
        if values.shape != weights.shape:
            raise ValueError(f"{name} {tuple(values.shape)} must be (N,), as weights {tuple(weights.shape)}")
    trained = weights > 0
    return {name: values[trained] for name, values in columns.items()}
