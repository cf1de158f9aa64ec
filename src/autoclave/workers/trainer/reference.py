"""The worker that holds a frozen policy, and what stands in its place where none is needed."""

from __future__ import annotations

from typing import TypeVar

from autoclave.config import TrainerConfig
from autoclave.models import Policy
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.trainer.scoring import DEFAULT_TRAINER, Scoring, log_probs_of

T = TypeVar("T")


class ReferenceWorker:
    """The policy that training started from, for KL terms."""

    def __init__(
        self,
        policy: Policy,
        *,
        temperature: float,
        micro_batch_tokens: int,
        trainer: TrainerConfig = DEFAULT_TRAINER,
    ) -> None:
        self._model = policy.model.requires_grad_(False)
        self._scoring = Scoring.of(
            policy.model, trainer, temperature=temperature, micro_batch_tokens=micro_batch_tokens
        )

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `reference_log_probs` (N,) float32."""
        column = log_probs_of(self._model, batch, self._scoring)
        return batch.with_responses(reference_log_probs=column)


class NoReference:
    """In place of the reference group, for algorithms without a KL term."""

    def log_probs(self, batch: T) -> T:
        """`batch` as it is."""
        return batch
