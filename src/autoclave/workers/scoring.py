"""Log-probs of a packed batch under a model, micro-batch by micro-batch, and the worker that holds a frozen policy."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from autoclave.core.rollout import FloatArray
from autoclave.models import Policy, response_scores
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register

T = TypeVar("T")


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


class ReferenceWorker:
    """The policy that training started from, for KL terms."""

    def __init__(self, policy: Policy, *, temperature: float, micro_batch_tokens: int) -> None:
        self._model = policy.model.requires_grad_(False)
        self._temperature, self._micro_batch_tokens = temperature, micro_batch_tokens

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `reference_log_probs` (N,) float32."""
        column = log_probs_of(self._model, batch, self._temperature, self._micro_batch_tokens)
        return batch.with_responses(reference_log_probs=column)


class NoReference:
    """In place of the reference group, for algorithms without a KL term."""

    def log_probs(self, batch: T) -> T:
        """`batch` as it is."""
        return batch
