"""Our actor passes the suite that every trainer backend must pass, in one process and sharded over two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from autoclave.config import TrainerConfig
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.workers.actor_conformance import ActorConformance, MakeActor
from tests.workers.changing_actor import ChangingActor, make_actor


class TestInline(ActorConformance):
    @pytest.fixture
    def make_actor(self) -> Iterator[MakeActor]:
        pool = ResourcePool("one")
        yield lambda folder, setup: WorkerGroup(pool, partial(make_actor, folder, setup))
        pool.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("sharding", ["zero3", "zero2", "none"], scope="class")
class TestOnTwoProcesses(ActorConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def group(cls) -> Iterator[WorkerGroup[ChangingActor]]:
        pool = ResourcePool("two", SpawnExecutor([(), ()]))
        try:
            yield WorkerGroup(pool, ChangingActor, name="actor", process_group=True)
        finally:
            pool.close()

    @pytest.fixture
    def make_actor(self, group: WorkerGroup[ChangingActor], sharding: str) -> MakeActor:
        def make(folder, setup):
            group.become(folder, setup, TrainerConfig(sharding=sharding)).result()
            return group

        return make
