"""The worker that holds the critic in training, and what stands in its place where none is needed."""

from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from autoclave.algorithms import Algorithm, Column
from autoclave.config import OptimizerConfig, TrainerConfig
from autoclave.core.futures import completed
from autoclave.models import HeadModel, response_values
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.trainer.learner import LearningWorker
from autoclave.workers.trainer.scoring import scores_of
from autoclave.workers.trainer.sharding import PLAIN, device_of, run_as_forward
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
        trainer: TrainerConfig = PLAIN,
        device: torch.device | None = None,
    ) -> None:
        """`device` is where it computes; left out, where the critic is, which must be the host if it is sharded."""
        self._critic, self._model, self._algorithm = critic, critic.model, algorithm
        self._micro_batch_tokens = micro_batch_tokens
        super().__init__(
            TrainedModel(
                critic.model,
                optimizer,
                total_steps=total_steps,
                micro_batch_tokens=micro_batch_tokens,
                setting="critic.optimizer",
                trainer=trainer,
                device=device,
            )
        )

    @register(Dispatch.DATA_PARALLEL)
    def values(self, batch: Batch) -> Batch:
        """`batch` with `old_values` (N,) float32, by the critic as it is now."""
        pieces = batch.micro_batches(self._micro_batch_tokens)
        column = scores_of(self._model, batch, pieces, lambda part: self._predict(part)[Column.VALUES])
        return batch.with_responses(old_values=column)

    @register(Dispatch.DATA_PARALLEL)
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
        ids, attention, response = (torch.from_numpy(array).to(device_of(self._model)) for array in part.padded())
        return {Column.VALUES: run_as_forward(self._model, response_values, ids, attention, response)}

    @register(Dispatch.ONE_TO_ALL)
    def export(self, folder: Path) -> None:
        """Write the critic; see `export_model`."""
        self.export_model(self._critic, folder)


class NoCritic:
    """In place of the critic's group, for algorithms that read no values."""

    def values(self, batch: T) -> T:
        return batch

    def update(self, batch: Batch, minibatches: int) -> Future[dict[str, float]]:
        """Nothing is learnt, and there are no metrics."""
        return completed({})
