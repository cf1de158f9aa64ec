"""Log-probs of a packed batch under a model, micro-batch by micro-batch."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from autoclave.config import TrainerConfig
from autoclave.core.rollout import FloatArray
from autoclave.models import Layout, apply_liger, layout_for, response_log_probs
from autoclave.workers.batch import Array, Batch
from autoclave.workers.trainer.peers import FILLER, missing_passes
from autoclave.workers.trainer.sharding import device_of, reshard, run_as_forward


@dataclass(frozen=True, slots=True)
class Scoring:
    """Settings by which batches are put to a model."""

    temperature: float
    micro_batch_tokens: int
    logits_chunk: int
    layout: Layout

    @staticmethod
    def of(
        model: PreTrainedModel,
        trainer: TrainerConfig,
        device: torch.device,
        *,
        temperature: float,
        micro_batch_tokens: int,
    ) -> "Scoring":
        """As the settings say; `model`, which is to compute on `device`, gets the kernels that they ask for.

        Raises ConfigError, HostError: as `models.require_liger`.
        """
        if trainer.liger:
            apply_liger(model, device)
        dtype = torch.bfloat16 if trainer.mixed_precision == "bfloat16" else model.dtype
        layout = layout_for(model, trainer.packing, device, dtype)
        chunk = trainer.chunk_for(model.config.vocab_size)
        return Scoring(temperature, micro_batch_tokens, chunk, layout)

    def pieces(self, batch: Batch) -> Iterator[Array]:
        return batch.micro_batches(self.micro_batch_tokens, self.layout)


def batch_log_probs(
    model: PreTrainedModel, batch: Batch, scoring: Scoring, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """`response_log_probs` of a batch that fits into memory at once: two (N,) tensors on the device that computes."""
    arrays = {"padded": batch.padded, "packed": batch.packed, "shared_prompts": batch.with_shared_prompts}[
        scoring.layout
    ]
    ids, places, response, *shared = (torch.from_numpy(array).to(device_of(model)) for array in arrays())
    attention, positions = (places, None) if scoring.layout == "padded" else (None, places)
    if shared:
        attention = ids.new_ones(1, 1, 1, 1)  # no mask is to be made of the positions
    return run_as_forward(
        model,
        response_log_probs,
        ids,
        attention,
        response,
        position_ids=positions,
        **({"predictors": shared[0], "shared": tuple(shared[1:])} if shared else {}),
        temperature=scoring.temperature,
        entropy_gradient=entropy_gradient,
        logits_chunk=scoring.logits_chunk,
    )


def log_probs_of(model: PreTrainedModel, batch: Batch, scoring: Scoring) -> FloatArray:
    """(N,) float32 log-probs of all response tokens of `batch`. Of all ranks, which have rows of their own."""
    return scores_of(model, batch, scoring.pieces(batch), lambda part: batch_log_probs(model, part, scoring)[0])


@torch.no_grad()
def scores_of(
    model: PreTrainedModel, batch: Batch, pieces: Iterable[Array], score: Callable[[Batch], Tensor]
) -> FloatArray:
    """(N,) float32 of all response tokens of `batch`, by `score`, which gives those of a part of it by `model`.

    `pieces` are the rows of each part. Of all ranks, which have rows of their own.
    """
    column = np.zeros(len(batch.response_rows), dtype=np.float32)
    parts = list(pieces)
    fillers = missing_passes(len(parts))  # before the first pass: ranks must meet in one order
    for rows in parts:
        column[batch.response_index(rows)] = score(batch.select(rows)).cpu().numpy()
    for _ in range(fillers):
        score(FILLER)
    reshard(model)
    return column
