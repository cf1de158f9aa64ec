"""What the workers share whose models learn: state in and out."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from autoclave.models import adapter_scale, merged
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.trainer.sharding import whole_weights
from autoclave.workers.trainer.trained_model import TrainedModel


class LearningWorker(MeasuresMemory):
    """A worker around a model in training."""

    def __init__(self, trained: TrainedModel) -> None:
        self._trained = trained

    def plain_copy(self) -> dict[str, Tensor]:
        """A copy of the weights by the names of a model without adapters, which are added in; on rank 0. Of all ranks.

        Tied weights are one tensor under several names.
        """
        module = self._trained.module
        return dict(merged(whole_weights(module), adapter_scale(module)))

    @register(Dispatch.ONE_TO_ALL)
    def begin_save(self, folder: Path) -> None:
        """Copy what training goes on from, and begin to write it to `folder`; see `TrainedModel.begin_save`."""
        self._trained.begin_save(folder)

    @register(Dispatch.ONE_TO_ALL)
    def finish_save(self, wait: bool) -> bool:
        """Whether what was begun is written; with `wait`, it is when this returns; see `TrainedModel.finish_save`."""
        return self._trained.finish_save(wait)

    @register(Dispatch.ONE_TO_ALL)
    def load(self, folder: Path) -> None:
        """Go on from what was saved in `folder`; see `TrainedModel.load`."""
        self._trained.load(folder)

    def onload(self) -> None:
        """Take the GPU."""
        self._trained.onload()

    def offload(self) -> None:
        """Leave the GPU to another group of the pool."""
        self._trained.offload()
