"""Base of workers whose models train: state in and out."""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.trainer.sources import gathered_weights, sources_of
from autoclave.workers.trainer.trained_model import TrainedModel


class LearningWorker(MeasuresMemory):
    """A worker around a model in training."""

    def __init__(self, trained: TrainedModel) -> None:
        self._trained = trained

    def plain_copy(self) -> dict[str, Tensor]:
        """A copy of the weights by the names of a model without adapters, which are added in; on rank 0. Of all ranks.

        Tied weights are one tensor under several names.
        """
        found = gathered_weights(sources_of(self._trained.module))
        return {name: copy for names, tensor in found for copy in [tensor.clone()] for name in names}

    def plain_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The same one at a time, each by one of its names; must be asked for to the end. Of all ranks."""
        return ((names[0], tensor) for names, tensor in gathered_weights(sources_of(self._trained.module)))

    @register(Dispatch.ONE_TO_ALL)
    def begin_save(self, folder: Path) -> None:
        """Copy what training goes on from, and begin to write it to `folder`; see `TrainedModel.begin_save`."""
        self._trained.begin_save(folder)

    @register(Dispatch.ONE_TO_ALL)
    def finish_save(self, wait: bool) -> bool:
        """Return whether what was begun is written; with `wait`, it is when this returns; see
        `TrainedModel.finish_save`.
        """
        return self._trained.finish_save(wait)

    @register(Dispatch.ONE_TO_ALL)
    def load(self, folder: Path) -> None:
        self._trained.load(folder)

    def onload(self) -> None:
        self._trained.onload()

    def offload(self) -> None:
        self._trained.offload()
