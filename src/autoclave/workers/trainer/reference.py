"""The worker that holds a frozen policy, and what stands in its place where none is needed."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

import torch

from autoclave.config import TrainerConfig
from autoclave.models import Policy
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.scoring import Scoring, log_probs_of
from autoclave.workers.trainer.sharding import PLAIN, hold, offload, onload

T = TypeVar("T")


class ReferenceWorker(MeasuresMemory):
    """The policy that training started from, for KL terms."""

    def __init__(
        self,
        policy: Policy,
        *,
        temperature: float,
        micro_batch_tokens: int,
        trainer: TrainerConfig = PLAIN,
        device: torch.device | None = None,
    ) -> None:
        """`device` is where it computes; left out, where the policy is, which must be the host if it is sharded."""
        self._model, device = policy.model.requires_grad_(False), device or policy.model.device
        self._scoring = Scoring.of(
            self._model, trainer, device, temperature=temperature, micro_batch_tokens=micro_batch_tokens
        )
        hold(self._model, trainer, device)

    @register(Dispatch.DATA_PARALLEL)
    def log_probs(self, batch: Batch) -> Batch:
        """`batch` with `reference_log_probs` (N,) float32."""
        column = log_probs_of(self._model, batch, self._scoring)
        return batch.with_responses(reference_log_probs=column)

    def onload(self) -> None:
        """Take the GPU."""
        onload(self._model)

    def offload(self) -> None:
        """Leave the GPU to another group of the pool."""
        offload(self._model)


class SharedReference:
    """In place of the reference group where an adapter learns: the actor's frozen weights are the reference."""

    def __init__(self, actor: WorkerGroup[ActorWorker]) -> None:
        self._actor = actor

    def log_probs(self, batch: Batch | Future[Batch]) -> Future[Batch]:
        """`batch` with `reference_log_probs`, by the actor without its adapter."""
        return self._actor.reference_log_probs(batch)


class NoReference:
    """In place of the reference group, for algorithms without a KL term."""

    def log_probs(self, batch: T) -> T:
        """`batch` as it is."""
        return batch
