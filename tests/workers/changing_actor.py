"""An actor that becomes another one in the same process, and tells what is inside; importable by workers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from autoclave.config import TrainerConfig
from autoclave.models import load_policy
from autoclave.workers import Dispatch, register
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.peers import num_ranks
from autoclave.workers.trainer.sharding import PLAIN
from tests.workers.actor_conformance import Setup


def make_actor(folder: Path, setup: Setup, trainer: TrainerConfig = PLAIN, device: str = "cpu") -> ActorWorker:
    return ActorWorker(
        load_policy(folder, device="cpu", in_parts=num_ranks() > 1),
        setup.algorithm,
        setup.optimizer,
        total_steps=setup.total_steps,
        temperature=setup.temperature,
        micro_batch_tokens=setup.micro_batch_tokens,
        trainer=trainer,
        device=torch.device(device),
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
    def kept_here(self) -> int:
        """Numbers in the weights that this rank holds between calls."""
        weights = self._policy.model.parameters()
        return sum((each.to_local() if isinstance(each, DTensor) else each).numel() for each in weights)
