"""Base of workers whose models train: state in and out."""

from pathlib import Path

from autoclave.models import save_model
from autoclave.models.policy import TokenizedModel
from autoclave.workers.dispatch import Dispatch, register
from autoclave.workers.memory import MeasuresMemory
from autoclave.workers.trainer.peers import this_rank
from autoclave.workers.trainer.saved_state import StateWriter, load_state, state_of
from autoclave.workers.trainer.sharding import is_sharded, offload, onload
from autoclave.workers.trainer.sources import gathered_weights, sources_of
from autoclave.workers.trainer.trained_model import TrainedModel


class LearningWorker(MeasuresMemory):
    """A worker around a model in training."""

    def __init__(self, trained: TrainedModel) -> None:
        self._trained, self._writer = trained, StateWriter()

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
        """Copy weights, optimizer and the number of steps, and begin to write them to `folder`, sharded as they are.

        Raises HostError: what was begun before could not be written.
        """
        trained = self._trained
        self._writer.begin(state_of(trained.module, trained.optimizer, trained.steps_taken), folder)

    @register(Dispatch.ONE_TO_ALL)
    def finish_save(self, wait: bool) -> bool:
        """Return whether what was begun is written; with `wait`, it is when this returns.

        Raises HostError: the disk is full or fails.
        """
        return self._writer.finish(wait=wait)

    @register(Dispatch.ONE_TO_ALL)
    def load(self, folder: Path) -> None:
        """Go on from what was saved, on however many ranks.

        Raises CheckpointError: it is damaged, or of a model of another shape.
        """
        trained = self._trained
        trained.steps_taken = load_state(trained.module, trained.optimizer, folder, self._writer.process_group())

    @register(Dispatch.ONE_TO_ALL)
    def load_weights(self, folder: Path) -> None:
        """Take the weights that were saved in `folder`, to use them. Raises as `load`."""
        load_state(self._trained.module, None, folder, self._writer.process_group())

    def onload(self) -> None:
        onload(self._trained.module, self._trained.optimizer)

    def offload(self) -> None:
        offload(self._trained.module, self._trained.optimizer)
