"""Log-probs of a packed batch under a model, micro-batch by micro-batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from autoclave.core.rollout import FloatArray
from autoclave.models import response_scores
from autoclave.workers.batch import Batch


def padded_scores(
    model: PreTrainedModel, batch: Batch, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """`response_scores` of a batch that fits into memory at once: two (N,) tensors on the model's device."""
    ids, attention, response = (torch.from_numpy(array).to(model.device) for array in batch.padded())
    return response_scores(model, ids, attention, response, temperature=temperature, entropy_gradient=entropy_gradient)


@torch.no_grad()
def log_probs_of(model: PreTrainedModel, batch: Batch, temperature: float, micro_batch_tokens: int) -> FloatArray:
    """(N,) float32 log-probs of all response tokens of `batch`."""
    column = np.zeros(len(batch.response_rows), dtype=np.float32)
    for rows in batch.micro_batches(micro_batch_tokens):
        column[batch.response_index(rows)] = padded_scores(model, batch.select(rows), temperature)[0].cpu().numpy()
    return column
