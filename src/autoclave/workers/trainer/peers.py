"""Communication among the ranks of a worker group: counts, columns and failures.

The ranks are those of the default process group; without one there is one rank, and all of this is the identity. A
call here is made by all ranks or by none.
"""

import os
from typing import TypeVar

import numpy as np
import torch
import torch.distributed

from autoclave.core import FaultError
from autoclave.workers.batch import Batch

T = TypeVar("T")

FILLER = Batch(np.zeros(2, np.int64), np.array([False, True]), np.array([0, 2]), {}, {})
"""A row of two tokens, for a pass that a rank takes part in only because others need its share of the weights."""


def num_ranks() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def this_rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def require_process_group() -> None:
    """Models that learn on several ranks must learn the same.

    Raises RuntimeError: this worker has peers, and no way to reach them.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        raise RuntimeError("a model that learns on several ranks needs WorkerGroup(..., process_group=True)")


def gather(value: T) -> list[T]:
    if num_ranks() == 1:
        return [value]
    values: list[T | None] = [None] * num_ranks()
    torch.distributed.all_gather_object(values, value)
    return values  # pyright: ignore[reportReturnType]  all are there now


def missing_passes(count: int) -> int:
    """Number of forward passes beyond `count` that some other rank makes: as many must be made here."""
    if num_ranks() == 1:
        return 0
    most = torch.tensor(count)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return int(most) - count


def gather_rows(batch: Batch) -> tuple[Batch, slice]:
    """The rows of all ranks, and where in their response tokens those of `batch` stand."""
    shares = gather(batch)
    start = sum(len(share.response_rows) for share in shares[: this_rank()])
    return Batch.concatenate(shares), slice(start, start + len(batch.response_rows))


def raise_together(error: FaultError | None) -> None:
    """Raise the first error that any rank has, on all of them: one that went on alone would wait for ever.

    Raises FaultError: a rank has one.
    """
    first = next((found for found in gather(error) if found), None)
    if first:
        raise first
