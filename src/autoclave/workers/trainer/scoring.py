"""Log-probs of a packed batch under a model, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from autoclave.core.rollout import FloatArray
from autoclave.models import response_scores
from autoclave.workers.batch import Batch
from autoclave.workers.trainer.peers import FILLER, missing_passes
from autoclave.workers.trainer.sharding import device_of, reshard, run_as_forward


def padded_scores(
    model: PreTrainedModel, batch: Batch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """`response_scores` of a batch that fits into memory at once: two (N,) tensors on the device that computes."""
    ids, attention, response = (torch.from_numpy(array).to(device_of(model)) for array in batch.padded())
    return run_as_forward(
        model, response_scores, ids, attention, response, temperature=temperature, entropy_gradient=entropy_gradient
    )


def log_probs_of(model: PreTrainedModel, batch: Batch, temperature: float, micro_batch_tokens: int) -> FloatArray:
    """(N,) float32 log-probs of all response tokens of `batch`. Of all ranks, which have rows of their own."""
    return scores_of(model, batch, micro_batch_tokens, lambda part: padded_scores(model, part, temperature)[0])


@torch.no_grad()
def scores_of(
    model: PreTrainedModel, batch: Batch, micro_batch_tokens: int, score: Callable[[Batch], Tensor]
) -> FloatArray:
    """(N,) float32 of all response tokens of `batch`, by `score`, which gives those of a part of it by `model`.

    Of all ranks, which have rows of their own.
    """
    column = np.zeros(len(batch.response_rows), dtype=np.float32)
    pieces = list(batch.micro_batches(micro_batch_tokens))
    fillers = missing_passes(len(pieces))  # before the first pass: ranks must meet in one order
    for rows in pieces:
        column[batch.response_index(rows)] = score(batch.select(rows)).cpu().numpy()
    for _ in range(fillers):
        score(FILLER)
    reshard(model)
    return column
