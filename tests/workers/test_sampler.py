"""A sampler on a worker group: completions arrive one by one, and a failure leaves no future waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from autoclave.core import Completion, FaultError
from autoclave.rollout import Deliver, Request, TransformersEngine
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler import SamplerWorker, WorkerSampler
from tests.training_parts import DEADLINE_S, completion, reciting_policy, request

pytestmark = pytest.mark.timeout(DEADLINE_S)
REQUESTS = [request([3], number, temperature=0.0) for number in range(3)]


class ScriptedEngine:
    """An `Engine` that does what a function says."""

    def __init__(self, script: Callable[[Deliver], None]) -> None:
        self._script = script
        self.weights: list[tuple] = []

    def generate(self, requests: Sequence[Request], deliver: Deliver) -> None:
        self._script(deliver)

    def update_weights(self, version: int, weights) -> None:
        self.weights.append((version, weights))


@pytest.fixture
def pool() -> Iterator[ResourcePool]:
    made = ResourcePool("sampler")
    yield made
    made.close()


def sampler_with(pool: ResourcePool, script: Callable[[Deliver], None]) -> WorkerSampler:
    return WorkerSampler(WorkerGroup(pool, lambda: SamplerWorker(ScriptedEngine(script))))


def test_each_future_gets_the_completion_of_its_request(pool):
    def script(deliver: Deliver) -> None:
        for index in (2, 0, 1):
            deliver(index, completion(text=f"answer {index}"))

    futures = sampler_with(pool, script).submit(REQUESTS)
    assert [future.result(DEADLINE_S).text for future in futures] == ["answer 0", "answer 1", "answer 2"]


def test_a_failure_of_the_engine_fails_every_pending_future_and_no_other(pool):
    def script(deliver: Deliver) -> None:
        deliver(1, completion(text="in time"))
        raise FaultError("the engine died")

    first, second, third = sampler_with(pool, script).submit(REQUESTS)
    assert second.result(DEADLINE_S).text == "in time"
    for pending in (first, third):
        with pytest.raises(FaultError, match="the engine died"):
            pending.result(DEADLINE_S)


def test_a_completion_that_the_engine_forgot_is_an_error_and_no_hang(pool):
    (future, *_) = sampler_with(pool, lambda deliver: None).submit(REQUESTS)
    with pytest.raises(RuntimeError, match="without this completion"):
        future.result(DEADLINE_S)


def test_sampling_on_a_pool_that_closes_is_an_error_and_no_hang():
    pool = ResourcePool("closing")
    sampler = sampler_with(pool, lambda deliver: None)
    go_on = threading.Event()
    pool.submit(go_on.wait, DEADLINE_S)
    futures = sampler.submit(REQUESTS)
    closing = threading.Thread(target=pool.close)
    closing.start()
    with pytest.raises(RuntimeError, match="cancelled"):
        futures[0].result(DEADLINE_S)
    go_on.set()
    closing.join(DEADLINE_S)


def test_a_real_engine_answers_through_its_group(pool):
    group = WorkerGroup(pool, lambda: SamplerWorker(TransformersEngine(reciting_policy("abc"), batch_size=2)))
    said: list[Completion] = [future.result(DEADLINE_S) for future in WorkerSampler(group).submit(REQUESTS)]
    group.update_weights(4, reciting_policy("xyz").model.state_dict()).result(DEADLINE_S)
    said += [future.result(DEADLINE_S) for future in WorkerSampler(group).submit(REQUESTS[:1])]
    assert [one.text for one in said] == ["abc", "abc", "abc", "xyz"]
    assert said[-1].policy_versions == ((4, 0, 4),)
