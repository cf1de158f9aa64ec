"""Errors of probes on each layer of one model, and their baselines."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from autoclave.core import Primitive
from autoclave.evaluation.probing.regression import Fitting, fit

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def number_of(value: Primitive) -> float | None:
    """Return the value of a variable as a float; None for a bool, a NaN, or an integer beyond the floats."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]  an int or a float
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def scaled(values: Floats, problems: Integers, is_test: Flags) -> Floats:
    """Scale values by problem: -1 is the smallest of its training values, 1 the largest.

        y = 2 (v - low) / (high - low) - 1

    Test values may lie beyond and are not cut. A problem has one scale for all of its variables.

    Args:
        values: (N,) finite.
        problems: (N,), index of the problem of each.
        is_test: (N,); test values do not influence the scale.

    Returns:
        (N,); NaN for a problem without two different training values.
    """
    found = np.full(len(values), math.nan)
    for problem in np.unique(problems):
        rows = problems == problem
        trained = values[rows & ~is_test] / 2  # the difference of halves does not overflow
        if len(trained) and trained.min() < trained.max():
            with np.errstate(over="ignore"):
                share = (values[rows] / 2 - trained.min()) / (trained.max() - trained.min())
                found[rows] = 2 * share - 1
    return found


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs and targets of probes, N examples.

    Attributes:
        hidden: (N, L, D), float32, at the token of each variable.
        values: (N,), its final value.
        problems: (N,), index of its problem.
        is_test: (N,), equal for all examples of a sub-task.
    """

    hidden: torch.Tensor
    values: Floats
    problems: Integers
    is_test: Flags


@dataclass(frozen=True, slots=True)
class Errors:
    """Mean squared errors over the test examples, on the scale on which training targets fill -1 to 1.

    Attributes:
        mse: over all of them.
        inside: over those whose target is within -1 to 1 too; NaN without any.
    """

    mse: float
    inside: float


@dataclass(frozen=True, slots=True)
class LayerErrors:
    """Errors on one layer; 0 is the embedding. `shuffled` is of a probe that was fitted to targets in random order."""

    layer: int
    probe: Errors
    shuffled: Errors


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of the probes of one model.

    Attributes:
        train: number of training examples.
        test: number of test examples.
        test_outside: number of test examples whose target is beyond -1 to 1.
        problems: number of problems of these examples.
        without_scale: examples that were left out since all training values of their problem are equal.
        untrained: examples that were left out since their problem has no training example.
        mean: errors of predicting the mean of the training targets.
        variance: variance of the test targets.
        layers: empty without training or test examples.
    """

    train: int
    test: int
    test_outside: int
    problems: int
    without_scale: int
    untrained: int
    mean: Errors
    variance: float
    layers: tuple[LayerErrors, ...]


def probe_layers(examples: Examples, how: Fitting, *, seed: int, device: torch.device | None = None) -> ProbeResult:
    """Fit a probe to each layer, and measure it on the test examples. Equal seeds give equal figures.

    No information of test examples enters the fit: scales of targets and statistics of hidden states are those of
    training examples.
    """
    targets = scaled(examples.values, examples.problems, examples.is_test)
    has_scale = ~np.isnan(targets)
    trained, tested = has_scale & ~examples.is_test, has_scale & examples.is_test
    is_trained = np.isin(examples.problems, examples.problems[~examples.is_test])
    y, y_test = targets[trained], targets[tested]
    result = ProbeResult(
        train=len(y),
        test=len(y_test),
        test_outside=int((np.abs(y_test) > 1).sum()),
        problems=len(np.unique(examples.problems[has_scale])),
        without_scale=int((~has_scale & is_trained).sum()),
        untrained=int((~is_trained).sum()),
        mean=_errors(np.full(len(y_test), y.mean() if len(y) else math.nan), y_test),
        variance=_variance(y_test),
        layers=(),
    )
    if not len(y) or not len(y_test):
        return result
    mixed = np.random.default_rng([seed, 1]).permutation(y)
    columns = torch.from_numpy(np.stack([y, mixed], 1))
    probes = fit(examples.hidden[torch.from_numpy(trained)], columns, how, seed=seed, device=device)
    predicted = probes.predict(examples.hidden[torch.from_numpy(tested)]).double().cpu().numpy()  # (N, L, 2)
    layers = (LayerErrors(n, *(_errors(predicted[:, n, k], y_test) for k in (0, 1))) for n in range(predicted.shape[1]))
    return replace(result, layers=tuple(layers))


def _errors(predicted: Floats, targets: Floats) -> Errors:
    with np.errstate(over="ignore"):
        squares = (predicted - targets) ** 2
        inside = squares[np.abs(targets) <= 1]
        return Errors(_mean(squares), _mean(inside))


def _variance(targets: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(targets.var()) if len(targets) else math.nan


def _mean(figures: Floats) -> float:
    return float(figures.mean()) if len(figures) else math.nan
