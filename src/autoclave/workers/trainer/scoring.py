"""Log-probs of a packed batch under a model, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from autoclave.config import TrainerConfig
from autoclave.core.rollout import FloatArray
from autoclave.models import apply_liger, can_pack, response_scores
from autoclave.workers.batch import Array, Batch

DEFAULT_TRAINER = TrainerConfig()


@dataclass(frozen=True, slots=True)
class Scoring:
    """How batches are put to a model."""

    temperature: float
    micro_batch_tokens: int
    logits_chunk: int
    is_packed: bool

    @staticmethod
    def of(model: PreTrainedModel, trainer: TrainerConfig, *, temperature: float, micro_batch_tokens: int) -> Scoring:
        """As the settings say; `model` gets the kernels that they ask for.

        Raises:
            ConfigError, HostError: as `models.require_liger`.
        """
        if trainer.liger:
            apply_liger(model)
        chunk = trainer.chunk_for(model.config.vocab_size)
        return Scoring(temperature, micro_batch_tokens, chunk, can_pack(model, trainer.packing))

    def pieces(self, batch: Batch) -> Iterator[Array]:
        """The rows of each micro-batch."""
        return batch.micro_batches(self.micro_batch_tokens, is_packed=self.is_packed)


def batch_scores(
    model: PreTrainedModel, batch: Batch, scoring: Scoring, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """`response_scores` of a batch that fits into memory at once: two (N,) tensors on the model's device."""
    arrays = batch.packed() if scoring.is_packed else batch.padded()
    ids, places, response = (torch.from_numpy(array).to(model.device) for array in arrays)
    return response_scores(
        model,
        ids,
        None if scoring.is_packed else places,
        response,
        position_ids=places if scoring.is_packed else None,
        temperature=scoring.temperature,
        entropy_gradient=entropy_gradient,
        logits_chunk=scoring.logits_chunk,
    )


@torch.no_grad()
def log_probs_of(model: PreTrainedModel, batch: Batch, scoring: Scoring) -> FloatArray:
    """(N,) float32 log-probs of all response tokens of `batch`."""
    column = np.zeros(len(batch.response_rows), dtype=np.float32)
    for rows in scoring.pieces(batch):
        column[batch.response_index(rows)] = batch_scores(model, batch.select(rows), scoring)[0].cpu().numpy()
    return column
