"""An actor that becomes another one in the same process, and tells what is inside; importable by workers."""

from __future__ import annotations

from pathlib import Path

import torch

from autoclave.config import TrainerConfig
from autoclave.models import load_policy
from autoclave.workers import Dispatch, register
from autoclave.workers.trainer import ActorWorker
from autoclave.workers.trainer.conformance import Setup
from autoclave.workers.trainer.sharding import decoder_layers, whole


def make_actor(folder: Path, setup: Setup, trainer: TrainerConfig = TrainerConfig()) -> ActorWorker:
    return ActorWorker(
        load_policy(folder, device="cpu"),
        setup.algorithm,
        setup.optimizer,
        total_steps=setup.total_steps,
        temperature=setup.temperature,
        micro_batch_tokens=setup.micro_batch_tokens,
        trainer=trainer,
    )


class ChangingActor(ActorWorker):
    """Starting a process takes seconds, most of them for libraries."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    @register(Dispatch.ONE_TO_ALL)
    def become(self, folder: Path, setup: Setup, trainer: TrainerConfig) -> None:
        vars(self).clear()
        vars(self).update(vars(make_actor(folder, setup, trainer)))

    @register(Dispatch.ALL_TO_LIST)
    def local_numbers(self) -> int:
        """Weights that are kept here."""
        return sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel() for p in self._model.parameters())

    @register(Dispatch.ALL_TO_LIST)
    def computes_in(self) -> set[torch.dtype]:
        """Number formats of weights and activations in a decoder layer, and of the weights at rest and of gradients."""
        raise NotImplementedError

    @register(Dispatch.ONE_TO_ALL)
    def spoil(self, of_rank: int) -> None:
        """Make one number of this rank's share of a weight NaN."""
        weight = next(iter(decoder_layers(self._model)[0].mlp.up_proj.parameters()))
        with torch.no_grad():
            local = weight.to_local() if hasattr(weight, "to_local") else weight
            if torch.distributed.get_rank() == of_rank:
                local[0, 0] = torch.nan
        whole(weight)
