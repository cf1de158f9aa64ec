"""The worker that holds a frozen reward model, and what stands in its place where none is configured."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import torch

from autoclave.core import FaultError
from autoclave.models import HeadModel, sequence_scores
from autoclave.workers.batch import Batch
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.pool import done


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

        Raises:
            FaultError: a score is not finite.
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
        """`batch` as it is."""
        return done(batch)
