"""Measurements beside a loss, in a form that adds up over micro-batches and ranks. Plain numbers, fit for JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Observations of one part of an optimizer step, by the name of the metric.

    `totals` add up over parts; `sums`, over trained tokens, add up to a mean when divided by all trained tokens;
    of `maxima` the largest counts. `num_tokens` is the number of trained tokens of the part.
    """

    num_tokens: int
    totals: dict[str, float] = field(default_factory=dict[str, float])
    sums: dict[str, float] = field(default_factory=dict[str, float])
    maxima: dict[str, float] = field(default_factory=dict[str, float])


def observe(totals: dict[str, Tensor], means: dict[str, Tensor], maxima: dict[str, Tensor]) -> Diagnostics:
    """The diagnostics of one part. `totals` hold scalars, `means` and `maxima` (N,) over trained tokens."""
    num_tokens = next((len(values) for values in chain(means.values(), maxima.values())), 0)
    largest = {name: values.amax() for name, values in maxima.items() if len(values)}
    sums = {name: values.double().sum() for name, values in means.items()}
    scalars = [*totals.values(), *sums.values(), *largest.values()]
    # One transfer from the device, however many metrics there are.
    together = torch.stack([scalar.detach().double() for scalar in scalars]).cpu() if scalars else ()
    numbers = iter([float(number) for number in together])
    return Diagnostics(
        num_tokens,
        totals={name: next(numbers) for name in totals},
        sums={name: next(numbers) for name in sums},
        maxima={name: next(numbers) for name in largest},
    )


def step_metrics(parts: Iterable[Diagnostics]) -> dict[str, float]:
    """The metrics of an optimizer step from the diagnostics of its parts: micro-batches of all ranks, in any order.

    Returns:
        Metric by name. Means and maxima are left out if no token of any part was trained.
    """
    totals: dict[str, float] = {}
    sums: dict[str, float] = {}
    maxima: dict[str, float] = {}
    num_tokens = 0
    for part in parts:
        num_tokens += part.num_tokens
        for name, value in part.totals.items():
            totals[name] = totals.get(name, 0.0) + value
        for name, value in part.sums.items():
            sums[name] = sums.get(name, 0.0) + value
        for name, value in part.maxima.items():
            maxima[name] = max(maxima.get(name, value), value)
    means = {name: value / num_tokens for name, value in sums.items()} if num_tokens else {}
    return totals | means | maxima


def batch_metrics(columns: Mapping[str, Tensor]) -> dict[str, float]:
    """Metrics of a batch before it is trained on, over the tokens that train.

    Args:
        columns: of all rows that were computed, as `Algorithm.prepare` and `Algorithm.correct` gave them.

    Returns:
        With `kl`: `reward_kl`, mean over tokens, and `reward_kl_per_response`, mean over responses of their sum, in
        nats. With `importance`: `importance_mean`, `importance_max`, `importance_zero_share`, and
        `effective_sample_share`, (sum w)^2 / (N sum w^2). With `returns`: `explained_variance`,
        1 - Var(R - V) / Var(R). Nothing if no token trains.
    """
    trained = columns["weights"] > 0
    if not trained.any():
        return {}
    metrics: dict[str, Tensor] = {}
    if "kl" in columns:
        kl = columns["kl"][trained].double()
        metrics["reward_kl"] = kl.mean()
        metrics["reward_kl_per_response"] = kl.sum() / (torch.bincount(columns["row"][trained]) > 0).sum()
    if "importance" in columns:
        factors = columns["importance"][trained].double()
        metrics["importance_mean"] = factors.mean()
        metrics["importance_max"] = factors.amax()
        metrics["importance_zero_share"] = (factors == 0).double().mean()
        squares = factors.square().sum()
        metrics["effective_sample_share"] = factors.sum().square() / (len(factors) * squares) if squares else squares
    if "returns" in columns:
        returns, values = columns["returns"][trained].double(), columns["old_values"][trained].double()
        variance = returns.var(correction=0)
        if variance > 0:
            metrics["explained_variance"] = 1 - (returns - values).var(correction=0) / variance
    return {name: float(value) for name, value in metrics.items()}
