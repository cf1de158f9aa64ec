"""Readability of the layers of one model: the probes, and what they are to be compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from autoclave.evaluation.probing.regression import Fitting, fit
from autoclave.evaluation.probing.targets import Flags, Floats, Integers, scaled


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs and targets of probes, N examples.

    Attributes:
        hidden: (N, L, D), float32, at the token of each variable.
        values: (N,), what it held in the end.
        problems: (N,), which problem it is of.
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
        inside: over those whose target is within -1 to 1 too; NaN if none is.
    """

    mse: float
    inside: float


@dataclass(frozen=True, slots=True)
class LayerErrors:
    """One layer; 0 is the embedding. `shuffled` are those of a probe that learnt from targets in random order."""

    layer: int
    probe: Errors
    shuffled: Errors


@dataclass(frozen=True, slots=True)
class Probed:
    """Results.

    Attributes:
        train: examples that were learnt from.
        test: examples that were predicted.
        test_outside: those of them whose target is beyond -1 to 1.
        problems: how many problems these examples are of.
        without_scale: examples that were left out since all training values of their problem are equal.
        untrained: examples that were left out since their problem has no training example.
        mean: errors of saying the mean of the training targets.
        variance: of the test targets.
        layers: empty unless there is something to learn from and to test.
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


def probe_layers(examples: Examples, how: Fitting, *, seed: int, device: torch.device | None = None) -> Probed:
    """Fit a probe to each layer, and measure it on the test examples. Equal seeds give equal figures.

    Nothing of a test example is known to what is fitted: scales of targets and statistics of hidden states are those of
    training examples.
    """
    targets = scaled(examples.values, examples.problems, examples.is_test)
    has_scale = ~np.isnan(targets)
    learnt, tested = has_scale & ~examples.is_test, has_scale & examples.is_test
    is_trained = np.isin(examples.problems, examples.problems[~examples.is_test])
    y, y_test = targets[learnt], targets[tested]
    probed = Probed(
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
        return probed
    mixed = np.random.default_rng([seed, 1]).permutation(y)
    columns = torch.from_numpy(np.stack([y, mixed], 1))
    probes = fit(examples.hidden[torch.from_numpy(learnt)], columns, how, seed=seed, device=device)
    said = probes.predict(examples.hidden[torch.from_numpy(tested)]).double().cpu().numpy()  # (N, L, 2)
    layers = (LayerErrors(n, *(_errors(said[:, n, k], y_test) for k in (0, 1))) for n in range(said.shape[1]))
    return replace(probed, layers=tuple(layers))


def _errors(said: Floats, targets: Floats) -> Errors:
    with np.errstate(over="ignore"):
        squares = (said - targets) ** 2
        inside = squares[np.abs(targets) <= 1]
        return Errors(_mean(squares), _mean(inside))


def _variance(targets: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(targets.var()) if len(targets) else math.nan


def _mean(figures: Floats) -> float:
    return float(figures.mean()) if len(figures) else math.nan
