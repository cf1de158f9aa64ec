"""The worker that holds the critic in training, and what stands in its place where none is needed."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column
from autoclave.config import OptimizerConfig
from autoclave.core.rollout import FloatArray
from autoclave.models import HeadModel, response_values, save_head_model
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.pool import done
from autoclave.workers.trainer.learner import LearningWorker
from autoclave.workers.trainer.trained_model import TrainedModel, in_minibatches, mean_over_steps

T = TypeVar("T")


class CriticWorker(LearningWorker):
    """The critic in training by `algorithm`; its learning rate is planned over `total_steps`."""

    def __init__(
        self,
        critic: HeadModel,
        algorithm: Algorithm,
        optimizer: OptimizerConfig,
        *,
        total_steps: int,
        micro_batch_tokens: int,
    ) -> None:
        self._critic, self._model, self._algorithm = critic, critic.model, algorithm
        self._micro_batch_tokens = micro_batch_tokens
        super().__init__(
            TrainedModel(
                critic.model,
                optimizer,
                total_steps=total_steps,
                micro_batch_tokens=micro_batch_tokens,
                setting="critic.optimizer",
            )
        )

    @register(Dispatch.DATA_PARALLEL)
    def values(self, batch: Batch) -> Batch:
        """`batch` with `old_values` (N,) float32, by the critic as it is now."""
        return batch.with_responses(old_values=self._values_of(batch))

    @torch.no_grad()
    def _values_of(self, batch: Batch) -> FloatArray:
        column = np.zeros(len(batch.response_rows), dtype=np.float32)
        for rows in batch.micro_batches(self._micro_batch_tokens):
            column[batch.response_index(rows)] = self._predict(batch.select(rows))[Column.VALUES].cpu().numpy()
        return column

    @register(Dispatch.ONE_TO_ALL)
    def update(self, batch: Batch, minibatches: int) -> dict[str, float]:
        """One optimizer step for each minibatch of `batch`, in order; one that has no rows left changes nothing.

        Reads the columns `minibatch` and `weights`, and those that the loss of the algorithm's critic names.

        Returns:
            Metrics that begin with `critic/`, means over the optimizer steps that were taken.

        Raises:
            FaultError: as `ActorWorker.update`.
        """
        self._trained.require_finite_columns(batch)
        loss = self._algorithm.critic_loss
        steps = (self._trained.step(rows, self._predict, loss) for rows in in_minibatches(batch, minibatches))
        return {f"critic/{name}": value for name, value in mean_over_steps(steps).items()}

    def _predict(self, part: Batch) -> dict[str, Tensor]:
        ids, attention, response = (torch.from_numpy(array).to(self._model.device) for array in part.padded())
        return {Column.VALUES: response_values(self._model, ids, attention, response)}

    @register(Dispatch.ONE_TO_ALL)
    def export(self, folder: Path) -> None:
        """Write the critic to `folder` in Hugging Face form, for use elsewhere.

        Raises:
            HostError: the disk is full or fails.
        """
        save_head_model(self._critic, folder)


class NoCritic:
    """In place of the critic's group, for algorithms that read no values."""

    def values(self, batch: T) -> T:
        """`batch` as it is."""
        return batch

    def update(self, batch: Batch, minibatches: int) -> Future[dict[str, float]]:
        """Nothing is learnt, and there are no metrics."""
        return done({})

    def begin_save(self, folder: Path) -> Future[None]:
        """There is no state."""
        return done(None)

    def finish_save(self, wait: bool) -> Future[bool]:
        """There is no state."""
        return done(True)

    def load(self, folder: Path) -> Future[None]:
        """There is no state."""
        return done(None)

    def export(self, folder: Path) -> Future[None]:
        """There is nothing to write."""
        return done(None)
