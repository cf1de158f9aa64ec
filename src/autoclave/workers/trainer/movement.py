"""Movement of the weights by an optimizer step, measured on a sample of them in their own number format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from autoclave.workers.trainer.peers import gather

SAMPLE = 4096
"""Weights of each tensor that are compared, evenly spaced."""


@torch.no_grad()
def take_step(parameters: Iterable[Tensor], step: Callable[[], object]) -> dict[str, float]:
    """Take the optimizer step, and measure what it does to the weights that have a gradient. Of all ranks.

    Returns:
        `relative_update`, the norm of the change over the norm of the weights, and `changed_share`, the share of the
        weights that the number format lets change; 0 and 1 if no weight has a gradient.
    """
    pairs = [(_sample(p), _sample(p.grad) != 0) for p in parameters if p.grad is not None]
    before = [weights[moves].double() for weights, moves in pairs]
    step()
    change, size, changed, count = 0.0, 0.0, 0, 0
    if before:
        was = torch.cat(before)
        now = torch.cat([weights[moves].double() for weights, moves in pairs])
        numbers = torch.stack([(now - was).square().sum(), was.square().sum(), (now != was).sum().double()])
        change, size, changed = numbers.tolist()
        count = len(was)
    change, size, changed, count = map(sum, zip(*gather((change, size, changed, count)), strict=True))
    relative = math.sqrt(change / size) if size else 0.0
    return {"relative_update": relative, "changed_share": changed / count if count else 1.0}


def _sample(tensor: Tensor) -> Tensor:
    """A view of some of the numbers of a tensor, or of the part of it that this rank holds."""
    flat = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().reshape(-1)
    return flat[:: max(1, len(flat) // SAMPLE)]
