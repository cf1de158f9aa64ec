"""Linear regressions, one for each layer, fitted at once (torch). No model, no text.

Letters: N examples, L layers, D hidden units, K targets.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Fitting:
    """Settings of the fit of probes, with the values of the paper where it has them.

    Attributes:
        epochs: passes over the training examples.
        learning_rate: of Adam.
        batch_size: examples per step; not in the paper.
        standardise: scale each hidden unit to mean 0 and deviation 1 over the training examples; not in the paper.
    """

    epochs: int = 10
    learning_rate: float = 1e-3
    batch_size: int = 32
    standardise: bool = False


@dataclass(frozen=True, slots=True)
class Probes:
    """For each layer and target: weights (L, D, K), bias (L, 1, K); mean and scale (L, D) of hidden states."""

    weights: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor

    def predict(self, hidden: Tensor) -> Tensor:
        """Return (N, L, K) float32 for hidden states (N, L, D)."""
        ready = (hidden.to(self.mean) - self.mean) / self.scale
        return torch.baddbmm(self.bias, ready.transpose(0, 1), self.weights).transpose(0, 1)


def fit(hidden: Tensor, targets: Tensor, how: Fitting, *, seed: int, device: torch.device | None = None) -> Probes:
    """Fit linear probes that minimise the mean squared error by Adam, for each layer and target.

    They start at zero, so the seed decides the order of the examples alone. The loss is the sum over layers and
    targets; Adam updates each weight independently, so that equals fitting them one by one.

    Args:
        hidden: (N, L, D), N at least 1.
        targets: (N, K).
        how: settings of the fit.
        seed: of the order of examples.
        device: to compute on; by default that of `hidden`.
    """
    device = device or hidden.device
    targets = targets.to(device, torch.float32)
    num_layers, size = hidden.shape[1:]
    mean, scale = _statistics(hidden, how.standardise)
    start = Probes(
        torch.zeros(num_layers, size, targets.shape[1], device=device, requires_grad=True),
        torch.zeros(num_layers, 1, targets.shape[1], device=device, requires_grad=True),
        mean.to(device),
        scale.to(device),
    )
    optimizer = torch.optim.Adam([start.weights, start.bias], lr=how.learning_rate)
    order = torch.Generator().manual_seed(seed)
    for _ in range(how.epochs):
        for rows in torch.randperm(len(hidden), generator=order).split(how.batch_size):
            error = start.predict(hidden[rows]) - targets[rows.to(device)][:, None]  # (B, L, K)
            optimizer.zero_grad()
            error.square().mean(0).sum().backward()
            optimizer.step()
    return Probes(start.weights.detach(), start.bias.detach(), start.mean, start.scale)


def _statistics(hidden: Tensor, standardise: bool) -> tuple[Tensor, Tensor]:
    """Return mean and deviation for standardisation, (L, D) each; the deviation of a constant unit counts as 1."""
    shape = hidden.shape[1:]
    if not standardise:
        return hidden.new_zeros(shape, dtype=torch.float32), hidden.new_ones(shape, dtype=torch.float32)
    exact = hidden.double()
    deviation = exact.std(0, correction=0)
    return exact.mean(0).float(), torch.where(deviation > 0, deviation, 1.0).float()
