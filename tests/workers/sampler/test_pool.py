"""Many engines as one sampler: every request ends once, whichever engine dies or leaves; weights reach all of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoclave.core import Completion, FaultError, WorkerDied
from autoclave.rollout import Request
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
from autoclave.workers.spawn_executor import SpawnExecutor
from tests.training_parts import DEADLINE_S, reciting_policy, request
from tests.workers.sample_engines import CountingEngine, CountingWorker, Handed, make_worker, numbered

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)
PROMPTS = ([3], [4, 5], [6])


def asked(*seeds: tuple[int, ...], tokens: int = 3) -> list[Request]:
    return [request(PROMPTS[seed[-1] % 3], *seed, max_new_tokens=tokens) for seed in seeds]


@contextmanager
def samplers(
    replicas: int = 1, *, ranks: int = 0, make: Callable[[], SamplerWorker] = make_worker, **options: object
) -> Iterator[SamplerPool]:
    """A pool of groups: in this process, or with so many processes each."""
    executors = [SpawnExecutor([()] * ranks) if ranks else None for _ in range(replicas)]
    pools = [ResourcePool(f"pool-{number}", executor) for number, executor in enumerate(executors)]
    groups = [WorkerGroup(pool, make, name=f"sampler-{number}") for number, pool in enumerate(pools)]
    sampler = SamplerPool(groups, **options)
    try:
        yield sampler
    finally:
        sampler.close()
        for pool in pools:
            pool.close()


def results(futures: Sequence) -> list[Completion]:
    return [future.result(DEADLINE_S) for future in futures]


def num_sampled(sampler: SamplerPool) -> dict[str, int]:
    """Tokens that each group has sampled, by its name."""
    return {replica.group.name: replica.queues[0].stats.sampled_tokens for replica in sampler._replicas}


def seeds_of(completions: list[Completion]) -> list[str]:
    return [completion.text.partition(" by")[0] for completion in completions]


# --- Requests ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.sampled_from([None, 1, 2, 5]), st.lists(st.integers(0, 6), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_each_future_gets_the_completion_of_its_request(replicas, in_flight, batches):
    with samplers(replicas, in_flight=in_flight) as sampler:
        seeds = [[(batch, number) for number in range(size)] for batch, size in enumerate(batches)]
        futures = [sampler.submit(asked(*batch)) for batch in seeds]
        assert [seeds_of(results(batch)) for batch in futures] == [[str(seed) for seed in batch] for batch in seeds]


@pytest.mark.parametrize("in_flight", [None, 100])
def test_samples_of_one_prompt_stay_on_one_engine_and_prompts_are_spread(in_flight):
    with samplers(2, ranks=1, in_flight=in_flight) as sampler:
        seeds = [(sample, prompt) for prompt in range(4) for sample in range(3)]
        places = [done.text.partition(" by ")[2] for done in results(sampler.submit(asked(*seeds)))]
        by_prompt = [set(places[start : start + 3]) for start in range(0, 12, 3)]
        assert all(len(found) == 1 for found in by_prompt)
        if in_flight is None:
            assert by_prompt[0] == by_prompt[2] != by_prompt[1] == by_prompt[3]


def test_the_ranks_of_one_group_are_engines_too():
    with samplers(ranks=2) as sampler:
        places = {done.text.partition(" by ")[2] for done in results(sampler.submit(asked((0, 0), (0, 1))))}
        assert len(places) == 2


def test_no_engine_has_more_in_flight_than_it_may():
    most = []

    class Watched(CountingEngine):
        def step(self, seconds):
            most.append(len(self._requests))
            return super().step(seconds)

    with samplers(make=lambda: CountingWorker(Watched()), in_flight=3) as sampler:
        results(sampler.submit(asked(*((0, prompt) for prompt in range(20)))))
    assert max(most) == 3


def test_closing_ends_every_request_in_an_error():
    with samplers() as sampler:
        futures = sampler.submit(asked((0, 0), tokens=10**9))
    with pytest.raises(RuntimeError, match="the samplers are closed"):
        futures[0].result(DEADLINE_S)
    with pytest.raises(RuntimeError, match="the samplers are closed"):
        sampler.submit(asked((0, 0)))


def test_every_engine_can_be_asked_the_same_beside_what_it_does():
    with samplers(2, in_flight=1) as sampler:
        futures = sampler.submit(asked(*((0, prompt) for prompt in range(6)), tokens=50))
        said = {name: results(found) for name, found in sampler.submit_to_each(asked((1, 0), (1, 1))).items()}
        assert {name: {done.sampled_by for done in found} for name, found in said.items()} == {
            "sampler-0/0": {"sampler-0"},
            "sampler-1/0": {"sampler-1"},
        }
        assert all(seeds_of(found) == ["(1, 0)", "(1, 1)"] for found in said.values())
        assert seeds_of(results(futures)) == [str((0, prompt)) for prompt in range(6)]


# --- Weights -------------------------------------------------------------------------------------------------------


def test_all_engines_take_new_weights_and_requests_go_on_with_them():
    is_enough = threading.Event()

    class Ending(CountingEngine):
        def step(self, seconds):
            found = super().step(seconds)
            return found + [(number, self._pop(number)) for number in list(self._requests) if is_enough.is_set()]

    with samplers(2, make=lambda: CountingWorker(Ending())) as sampler:
        futures = sampler.submit(asked((0, 0), (0, 1), tokens=10**9))
        for version in (1, 2):
            sampler.update_weights(version, numbered(version)).result(DEADLINE_S)
        for name, then in num_sampled(sampler).items():
            while num_sampled(sampler)[name] < then + 2:
                threading.Event().wait(0.001)  # until each has sampled with the last weights
        is_enough.set()
        for completion in results(futures):
            assert completion.tokens.tolist() == sorted(completion.tokens.tolist())
            assert completion.tokens[-1] == 2
        assert {c.tokens[0] for c in results(sampler.submit(asked((1, 0), (1, 1))))} == {2}


def test_with_draining_a_request_has_the_weights_that_it_began_with():
    num_amid = 0
    with samplers(in_flight=2) as sampler:
        for version in itertools.count():
            futures = sampler.submit(asked(*((0, prompt) for prompt in range(4)), tokens=200))
            while not sampler._replicas[0].queues[0].stats.running and not futures[0].done():
                threading.Event().wait(0.001)
            updated = sampler.update_weights(version + 1, numbered(version + 1), drains=True)
            num_amid += not any(future.done() for future in futures)  # without draining, it came in the middle of these
            updated.result(DEADLINE_S)
            begun = [completion.policy_versions for completion in results(futures)]
            assert all(len(versions) == 1 for versions in begun)
            assert {versions[0][0] for versions in begun} <= {version, version + 1}
            if num_amid == 3:
                return


def test_versions_rise():
    with samplers() as sampler:
        sampler.update_weights(3, numbered(3)).result(DEADLINE_S)
        for version in (2, 3):
            with pytest.raises(ValueError, match=f"weights of version {version} come after those of version 3"):
                sampler.update_weights(version, numbered(version))


def test_weights_that_an_engine_refuses_are_an_error_of_the_update():
    message = "weights of version 1 did not reach sampler-0: the weights of another version"
    with samplers() as sampler, pytest.raises(FaultError, match=message):
        sampler.update_weights(1, Handed(1, "others")).result(DEADLINE_S)


# --- Deaths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [CountingEngine.KILL, CountingEngine.HANG])
def test_a_replica_that_dies_or_hangs_is_back_with_the_newest_weights_and_nothing_is_lost(order, tmp_path: Path):
    said: list[str] = []
    make = partial(make_worker, str(tmp_path))
    with samplers(2, ranks=1, make=make, restarts=1, timeout_s=5.0, say=said.append) as sampler:
        sampler.update_weights(1, numbered(1)).result(DEADLINE_S)
        seeds = [(0, 0), (order, 1), (0, 2), (0, 3)]
        completions = results(sampler.submit(asked(*seeds)))
        assert seeds_of(completions) == [str(seed) for seed in seeds]
        assert {token for completion in completions for token in completion.tokens} == {1}
    (line,) = said
    assert "worker group 'sampler-" in line
    assert ("was killed by signal 9" if order == CountingEngine.KILL else "has not answered for 5 s") in line


def test_when_a_replica_cannot_come_back_another_does_its_work(tmp_path: Path):
    make = partial(make_worker, str(tmp_path))
    with samplers(2, ranks=1, make=make) as sampler:
        seeds = [(0, 0), (CountingEngine.KILL, 1), (0, 2)]
        assert seeds_of(results(sampler.submit(asked(*seeds)))) == [str(seed) for seed in seeds]
        assert len(sampler.groups) == 1


def test_when_the_last_replica_dies_every_request_says_so(tmp_path: Path):
    with samplers(ranks=1, make=partial(make_worker, str(tmp_path))) as sampler:
        futures = sampler.submit(asked((0, 0), (CountingEngine.KILL, 1), tokens=10**9))
        for future in futures:
            with pytest.raises(WorkerDied, match="worker group 'sampler-0'"):
                future.result(DEADLINE_S)
        with pytest.raises(WorkerDied, match="no sampler is left"):
            sampler.submit(asked((0, 0)))


def test_an_engine_that_is_dead_is_made_anew_also_in_this_process(tmp_path: Path):
    with samplers(make=partial(make_worker, str(tmp_path)), restarts=1) as sampler:
        sampler.update_weights(1, numbered(1)).result(DEADLINE_S)
        completions = results(sampler.submit(asked((0, 0), (CountingEngine.BREAK, 1), (0, 2))))
        assert {token for completion in completions for token in completion.tokens} == {1}


def test_what_an_engine_raises_reaches_its_requests(tmp_path: Path):
    with samplers(make=partial(make_worker, str(tmp_path)), restarts=9) as sampler:
        (future,) = sampler.submit(asked((CountingEngine.FAIL, 0)))
        with pytest.raises(FaultError, match="the engine is broken"):
            future.result(DEADLINE_S)


def test_started_anew_it_samples_with_the_weights_of_the_beginning():
    with samplers() as sampler:
        sampler.update_weights(5, numbered(5)).result(DEADLINE_S)
        (forgotten,) = sampler.submit(asked((0, 0), tokens=10**9))
        sampler.restart()
        with pytest.raises(RuntimeError, match="were restarted"):
            forgotten.result(DEADLINE_S)
        assert results(sampler.submit(asked((0, 1))))[0].tokens[0] == 0
        sampler.update_weights(2, numbered(2)).result(DEADLINE_S)


# --- Coming and leaving --------------------------------------------------------------------------------------------


def test_a_replica_may_come_and_another_leave_while_requests_run():
    with samplers(2) as sampler:
        first, second = sampler.groups
        sampler.update_weights(1, numbered(1)).result(DEADLINE_S)
        futures = sampler.submit(asked(*((0, prompt) for prompt in range(8)), tokens=50))
        pool = ResourcePool("another")
        third = WorkerGroup(pool, make_worker, name="another")
        sampler.attach(third)
        sampler.detach(first)
        sampler.detach(second)
        completions = results(futures)
        assert seeds_of(completions) == [str((0, prompt)) for prompt in range(8)]
        assert {token for completion in completions for token in completion.tokens} == {1}
        assert sampler.groups == [third]
        with pytest.raises(ValueError, match="another is the only sampler"):
            sampler.detach(third)
        sampler.close()
        pool.close()


def test_a_real_engine_answers_through_its_pool():
    def make() -> SamplerWorker:
        return CountingWorker(TransformersEngine(reciting_policy("abc"), batch_size=2))

    requests = [request([3], number, temperature=0.0) for number in range(3)]
    with samplers(make=make) as sampler:
        said = results(sampler.submit(requests))
        sampler.update_weights(4, Handed(4, reciting_policy("xyz").model.state_dict())).result(DEADLINE_S)
        said += results(sampler.submit(requests[:1]))
    assert [one.text for one in said] == ["abc", "abc", "abc", "xyz"]
    assert said[-1].policy_versions == ((4, 0, 4),)
    assert all(before.finished_at <= after.finished_at for before, after in pairwise(said[::3]))
