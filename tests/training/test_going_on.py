"""A run whose workers die goes on with new ones from its newest checkpoint."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from autoclave.compose.training import _learn
from autoclave.config import CheckpointConfig, HealthActions, HealthConfig
from autoclave.core import EngineFault, IncompleteError, WorkerDied
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.runs.reader import read_events
from autoclave.training.health import Health
from autoclave.training.stages import Stages
from autoclave.training.watchdog import StopRequest
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
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
    """Workers of stages, as the code that built them restarts them."""

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


# --- Rolled back ---------------------------------------------------------------------------------------------------


def healthy_sampler() -> SamplerWorker:
    return SamplerWorker(TransformersEngine(tiny_policy(), batch_size=64))


def rolled_back(path: Path, *, max_rollbacks: int, breaks_at: tuple[int, ...]) -> list[str]:
    """What a run of 8 steps says that saves after each step, and whose n-th observed step rolls it back."""
    observed = count(1)

    class Broken(Health):
        def observe(self, metrics):
            mismatch = 1.0 if next(observed) in breaks_at else 0.0
            return Health.observe(self, {**metrics, "mismatch/mean": mismatch})

    health = HealthConfig(actions=HealthActions(mismatch_limit="rollback"), max_rollbacks=max_rollbacks)
    config = CONFIG.model_copy(update={"checkpoint": CheckpointConfig(every=1, keep=9), "health": health, "steps": 8})
    said: list[str] = []
    with (
        run_in(path, config=config, say=said.append) as run,
        closing(ResourcePool("another")) as pool,
        closing(SamplerPool([WorkerGroup(pool, healthy_sampler)])) as sampler,
    ):
        run = replace(run, stages=replace(run.stages, sampler=sampler), health=Broken(health))
        _learn(run, NewWorkers(run.stages), None, StopRequest())
        assert run.requests.counts()["open"] == 0
    return said


def responses(path: Path, step: int) -> list[str]:
    with gzip.open(path / "rollouts" / f"step-{step:06d}.jsonl.gz", "rt") as lines:
        return [json.loads(line)["response"] for line in lines]


def test_an_alert_rolls_the_run_back_to_a_checkpoint_three_steps_older_with_other_samples(tmp_path: Path):
    rolled_back(tmp_path / "healthy", max_rollbacks=1, breaks_at=())
    said = rolled_back(tmp_path / "broken", max_rollbacks=1, breaks_at=(6,))
    steps = [step for kind, step in metrics_in(tmp_path / "broken") if kind == "train"]
    assert steps == [1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8]
    (event,) = (event for event in read_events(tmp_path / "broken" / "metrics.jsonl") if event["kind"] == "rollback")
    assert (event["step"], event["to_step"], event["name"]) == (6, 3, "mismatch_limit/mismatch/mean")
    assert any("going on after step 3 with other samples" in line for line in said)
    same = [responses(tmp_path / "healthy", step) == responses(tmp_path / "broken", step) for step in (3, 4)]
    assert same == [True, False]


def test_a_run_is_rolled_back_so_often_and_then_ends(tmp_path: Path):
    with pytest.raises(IncompleteError, match=r"stopped at step 5 after 1 rollbacks .* by mismatch_limit"):
        rolled_back(tmp_path, max_rollbacks=1, breaks_at=(2, 7))
    assert [step for kind, step in metrics_in(tmp_path) if kind == "train"] == [
        1,
        2,
        1,
        2,
        3,
        4,
        5,
    ]  # from the start: no checkpoint is old enough
