"""Guards against NaN and infinity: they name what is not finite, and raise before a weight is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from autoclave.core import FaultError
from autoclave.workers.trainer.sharding import whole

NAMED = 3
"""Tensors that a message names; when one gradient is not finite, most are not."""


def require_finite(tensors: Mapping[str, Tensor], where: str, fix: str) -> None:
    """Raise unless every number of every tensor is finite. Of all ranks, if tensors are sharded.

    Raises:
        FaultError: some are not; the message begins with `where`, names the first tensors and how many of their numbers
            are not finite, and ends with `fix`.
    """
    found = [(name, tensor, int(whole((~torch.isfinite(tensor)).sum()))) for name, tensor in tensors.items()]
    bad = [f"{name} ({count} of {tensor.numel()})" for name, tensor, count in found if count]
    if bad:
        more = f" and {len(bad) - NAMED} more tensors" if len(bad) > NAMED else ""
        raise FaultError(f"{where}: not finite: {', '.join(bad[:NAMED])}{more}. {fix}")


def complaint_of(check: Callable[[], None]) -> FaultError | None:
    """Error that `check` raises, for ranks that must raise together."""
    try:
        check()
    except FaultError as error:
        return error
    return None


def gradients_of(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """The gradients by the names of their parameters."""
    return {f"gradient of {name}": weights.grad for name, weights in named_parameters if weights.grad is not None}
