"""The worker that holds a frozen policy, and what stands in its place where none is needed."""

from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import torch

from autoclave.config import TrainerConfig
from autoclave.core import FaultError
from autoclave.core.futures import completed
from autoclave.models import HeadModel, Policy, sequence_scores
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
        onload(self._model)

    def offload(self) -> None:
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
        return batch


class RewardModelWorker(MeasuresMemory):
    """Adds `weight` times what a reward model says to the rewards of the judge."""

    def __init__(self, reward_model: HeadModel, *, weight: float, micro_batch_tokens: int) -> None:
        self._model = reward_model.model.requires_grad_(False)
        self._weight, self._micro_batch_tokens = weight, micro_batch_tokens

    @register(Dispatch.DATA_PARALLEL)
    def scores(self, batch: Batch) -> Batch:
        """`batch` with `model_rewards` (B,) float64, weight x score, and `rewards` to which that is added.

        The score of a row is that of prompt and response, at the last token. A row without a reward, which is one
        without a verdict, is not looked at and stays without (NaN).

        Raises FaultError: a score is not finite.
        """
        judged = np.flatnonzero(np.isfinite(batch.rows["rewards"]))
        added = np.full(len(batch), np.nan)
        added[judged] = self._weight * self._scores_of(batch.select(judged))
        if not np.isfinite(added[judged]).all():
            raise FaultError("a score of the reward model is not finite; try model.dtype=float32")
        return batch.with_rows(model_rewards=added, rewards=batch.rows["rewards"] + added)

    @torch.no_grad()
    def _scores_of(self, batch: Batch) -> np.ndarray:
        scores = np.zeros(len(batch))
        for rows in batch.micro_batches(self._micro_batch_tokens):
            ids, attention, _ = batch.select(rows).padded()
            tensors = (torch.from_numpy(array).to(self._model.device) for array in (ids, attention))
            scores[rows] = sequence_scores(self._model, *tensors).double().cpu().numpy()
        return scores


class NoRewardModel:
    """In place of the reward model's group: the verdict alone is the reward."""

    def scores(self, batch: Batch) -> Future[Batch]:
        return completed(batch)
