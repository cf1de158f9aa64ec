"""An engine that can sleep does so while another group of its pool has the devices."""

from __future__ import annotations

from autoclave.rollout import EngineStats
from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.sampler.worker import SamplerWorker


class Trainer:
    @register(Dispatch.ONE_TO_ALL)
    def learn(self) -> list[str]:
        return list(EVENTS)


class Napping:
    """Writes down when it sleeps, and when it is asked to sample."""

    stats = EngineStats(0, 0, 0, 0)

    def sleep(self) -> None:
        EVENTS.append("sleep")

    def wake_up(self) -> None:
        EVENTS.append("wake up")

    def step(self, seconds: float) -> list[object]:
        EVENTS.append("sample")
        return []

    def close(self) -> None:
        pass


class Wakeful:
    """Cannot sleep."""

    stats = Napping.stats
    step = Napping.step
    close = Napping.close


EVENTS: list[str] = []


def turns(engine: object) -> list[str]:
    EVENTS.clear()
    pool = ResourcePool("shared")
    try:
        sampler = WorkerGroup(pool, lambda: SamplerWorker(engine))  # pyright: ignore[reportArgumentType]
        trainer = WorkerGroup(pool, Trainer)
        sampler.advance([()], 0.0).result()
        sampler.advance([()], 0.0).result()
        return trainer.learn().result()
    finally:
        pool.close()


def test_it_wakes_up_before_it_samples_and_sleeps_before_another_group_computes():
    assert turns(Napping()) == ["sleep", "wake up", "sample", "sample", "sleep"]


def test_one_that_cannot_is_left_as_it_is():
    assert turns(Wakeful()) == ["sample", "sample"]
