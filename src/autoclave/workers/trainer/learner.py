"""Base of workers whose models train: state in and out."""

from pathlib import Path

from autoclave.models import save_model
from autoclave.models.policy import TokenizedModel
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.trainer.peers import this_rank
from autoclave.workers.trainer.sharding import is_sharded
from autoclave.workers.trainer.sources import gathered_weights, sources_of
from autoclave.workers.trainer.trained_model import TrainedModel


class LearningWorker(MeasuresMemory):
    """A worker around a model in training."""

    def __init__(self, trained: TrainedModel) -> None:
        self._trained = trained

    def export_model(self, model: TokenizedModel, folder: Path) -> None:
        """Write it, whose weights train here, to `folder` in Hugging Face form, for use elsewhere. Of all ranks.

        Raises HostError: the disk is full or fails.
        """
        weights = (
            ((names[0], tensor) for names, tensor in gathered_weights(sources_of(model.model)))
            if is_sharded(model.model)
            else None
        )
        if this_rank() == 0:
            save_model(model, folder, weights=weights)
        for _ in weights or ():  # the other ranks take part
            pass

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
