"""A run whose workers die goes on with new ones from its newest checkpoint."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from autoclave.compose.training import _learn
from autoclave.config import CheckpointConfig
from autoclave.core import EngineFault, WorkerDied
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.training.interrupt import StopRequest
from autoclave.training.stages import Stages
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler import SamplerWorker
from autoclave.workers.sampler_pool import SamplerPool
from tests.training.test_run_to_end import CONFIG, metrics_in, run_in
from tests.training_parts import tiny_policy


class DiesLater(TransformersEngine):
    """Is of no more use when it gets weights a third time."""

    _updates = 0

    def update_weights(self, version, weights):
        self._updates += 1
        if self._updates == 3:
            raise EngineFault("the engine is dead")
        super().update_weights(version, weights)


@dataclass
class NewWorkers:
    """Workers of stages, as whoever built them makes them anew."""

    stages: Stages

    def restart(self) -> None:
        self.stages.actor.restart().result()
        self.stages.sampler.restart()


def steps_of(tmp_path: Path, restarts: int) -> list[int]:
    """The steps of a run whose only engine dies in the third one, and whose next one is killed as it starts."""
    config = CONFIG.model_copy(update={"checkpoint": CheckpointConfig(every=1), "worker_restarts": restarts})
    numbers = count()

    def make() -> SamplerWorker:
        number = next(numbers)
        if number == 1:
            raise WorkerDied("it was killed while it was made")
        return SamplerWorker((DiesLater if number == 0 else TransformersEngine)(tiny_policy(), batch_size=64))

    with (
        run_in(tmp_path, config=config) as run,
        closing(ResourcePool("another")) as pool,
        closing(SamplerPool([WorkerGroup(pool, make)])) as sampler,
    ):
        run = replace(run, stages=replace(run.stages, sampler=sampler))
        _learn(run, NewWorkers(run.stages), None, StopRequest())
        assert run.requests.counts()["open"] == 0
    return [step for kind, step in metrics_in(tmp_path) if kind == "train"]


def test_a_run_whose_last_sampler_dies_and_whose_next_one_dies_too_goes_on_and_ends(tmp_path: Path):
    assert steps_of(tmp_path, restarts=2) == [1, 2, 3, 4]


def test_once_too_often_ends_it(tmp_path: Path):
    with pytest.raises(EngineFault, match="the engine is dead"):
        steps_of(tmp_path, restarts=0)
    with pytest.raises(WorkerDied, match="while it was made"):
        steps_of(tmp_path / "again", restarts=1)
