"""The worker that holds a frozen policy, and what stands in its place where none is needed."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

from autoclave.models import Policy
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.group import WorkerGroup
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.scoring import log_probs_of

T = TypeVar("T")


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
