"""Whatever happens to samplers at whatever moment, each request and each update ends once, and errors have names."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from autoclave.core import EngineFault, FaultError, FinishReason, WorkerDied
from autoclave.rollout import EngineStats
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker
from tests.training_parts import DEADLINE_S
from tests.workers.sample_engines import CountingEngine, CountingWorker, numbered
from tests.workers.sampler.test_pool import asked, num_sampled, results, samplers, seeds_of

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


def first_then(first: type[CountingEngine]):
    """Makes an engine of a kind, and sound ones after it."""
    kinds = iter([first])
    return lambda: CountingWorker(next(kinds, CountingEngine)())


# --- Engines that answer wrongly -----------------------------------------------------------------------------------


class Doubling(CountingEngine):
    def step(self, seconds):
        return super().step(seconds) * 2


class Inventing(CountingEngine):
    def step(self, seconds):
        return [(number + 1000, completion) for number, completion in super().step(seconds)]


class Forgetting(CountingEngine):
    def add(self, requests):
        super().add(dict(list(requests.items())[1:]))


class Silent(CountingEngine):
    """Has its requests for ever, and says so; nobody can know that it is not at work."""

    def step(self, seconds):
        super().step(seconds)
        return []

    @property
    def stats(self):
        return EngineStats(0, 0, 0, 0)


WRONG = {
    Doubling: r"engine 0 of worker group 'sampler-0' answered request \(0, 0\) 2 times",
    Inventing: r"engine 0 of worker group 'sampler-0' answered request number 1000, which it does not have",
    Forgetting: r"engine 0 of worker group 'sampler-0' has lost requests: 3 have not ended, such as \(0, 0\)",
    Silent: r"has lost requests: 3 have not ended, such as \(0, 0\), and it has 0",
}


@pytest.mark.parametrize(("engine", "message"), WRONG.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_an_engine_that_loses_doubles_or_invents_a_request_is_an_error_that_names_it(engine, message):
    with samplers(make=lambda: CountingWorker(engine())) as sampler:
        for future in sampler.submit(asked((0, 0), (0, 3), (0, 6))):
            with pytest.raises(EngineFault, match=message):
                future.result(DEADLINE_S)


@pytest.mark.parametrize("engine", WRONG, ids=lambda engine: engine.__name__)
def test_such_an_engine_is_made_anew_and_every_request_is_answered_once(engine):
    said: list[str] = []
    with samplers(make=first_then(engine), restarts=1, say=said.append) as sampler:
        seeds = [(0, 0), (0, 3), (0, 6)]
        assert seeds_of(results(sampler.submit(asked(*seeds)))) == [str(seed) for seed in seeds]
    assert len(said) == 1


def test_a_callback_that_raises_takes_no_other_request_with_it(caplog):
    def raises(future: Future) -> None:
        raise OSError("the client is gone")

    with samplers() as sampler:
        futures = sampler.submit(asked((0, 0), (0, 1), tokens=5))
        futures[0].add_done_callback(raises)
        results(futures)
        results(sampler.submit(asked((0, 2))))


def with_change(**change):
    class Wrong(CountingEngine):
        def step(self, seconds):
            return [(number, replace(done, **change)) for number, done in super().step(seconds)]

    return Wrong


NOTHING = np.zeros(0)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"text": 3}, "text = 3: must be a str"),
        ({"tokens": NOTHING, "log_probs": NOTHING, "policy_versions": ()}, "tokens: must be at least one"),
        ({"log_probs": np.zeros(2)}, "log_probs: must be 1, as the tokens, not 2"),
        ({"log_probs": np.array([0.7])}, "log_probs: must be finite and at most 0"),
        ({"log_probs": np.array([np.nan])}, "log_probs: must be finite"),
        ({"log_prob_kind": "normal"}, "log_prob_kind = 'normal': must be one of raw, processed"),
        ({"policy_versions": ()}, r"policy_versions = \(\): ranges must cover the 1 tokens"),
        ({"policy_versions": ((0, 0, 2),)}, "ranges must cover the 1 tokens"),
        ({"policy_versions": ((7, 0, 1),)}, "versions must be those of update_weights so far, 0 to 0"),
    ],
)
def test_a_completion_that_breaks_a_rule_is_an_error_that_names_engine_request_and_rule(change, rule):
    with samplers(make=lambda: CountingWorker(with_change(**change)())) as sampler:
        (future,) = sampler.submit(asked((0, 3), tokens=1))
        with pytest.raises(
            EngineFault, match=rf"engine 0 of .*'sampler-0' answered request \(0, 3\) wrongly: .*{rule}"
        ):
            future.result(DEADLINE_S)


class Idle(CountingEngine):
    """Answers each step at once, without a token."""

    def step(self, seconds):
        time.sleep(seconds)
        return []


class Stuck(CountingEngine):
    """Does not return from a step before the test ends."""

    def step(self, seconds):
        time.sleep(2)
        return []


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Idle, r"'sampler-0' has not sampled a token for 0 s \(sampler.timeout_s\): by its stats 1 requests run"),
        (Stuck, r"'sampler-0' was to sample and has not answered for 0 s .*; it is in this process.*executor=spawn"),
    ],
)
def test_an_engine_that_samples_nothing_for_timeout_s_is_an_error(engine, message):
    with samplers(make=lambda: CountingWorker(engine()), timeout_s=0.2) as sampler:
        (future,) = sampler.submit(asked((0, 0)))
        with pytest.raises(FaultError, match=message):
            future.result(DEADLINE_S)


# --- Weights -------------------------------------------------------------------------------------------------------


def test_who_hears_that_weights_are_published_can_publish_at_once():
    with samplers() as sampler:
        again: list[Future] = []
        first = sampler.update_weights(1, numbered(1))
        first.add_done_callback(lambda _: again.append(sampler.update_weights(2, numbered(2))))
        first.result(DEADLINE_S)
        again[0].result(DEADLINE_S)


class Refusing(CountingEngine):
    def update_weights(self, version, weights):
        raise FaultError("no room for them")


def test_one_of_two_idle_samplers_that_refuses_weights_is_an_error_with_version_and_name():
    with samplers(2, make=first_then(Refusing)) as sampler:
        update = sampler.update_weights(7, numbered(7))
        with pytest.raises(FaultError, match="weights of version 7 did not reach sampler-0: no room for them"):
            update.result(DEADLINE_S)


def endless(sampler: SamplerPool) -> Future:
    """A request that runs, and never ends by itself."""
    (future,) = sampler.submit(asked((0, 0), tokens=10**9))
    while not num_sampled(sampler)["sampler-0"]:
        threading.Event().wait(0.001)
    return future


def test_weights_that_wait_for_a_request_when_all_is_started_anew_are_not_taken_over_later():
    with samplers() as sampler:
        endless(sampler)
        update = sampler.update_weights(5, numbered(5), drains=True)
        sampler.restart()
        with pytest.raises(RuntimeError, match="were restarted"):
            update.result(DEADLINE_S)
        assert results(sampler.submit(asked((0, 1))))[0].tokens[0] == 0
        sampler.update_weights(2, numbered(2)).result(DEADLINE_S)


def test_closing_ends_weights_on_their_way_in_an_error():
    with samplers() as sampler:
        endless(sampler)
        update = sampler.update_weights(1, numbered(1), drains=True)
    with pytest.raises(RuntimeError, match="the samplers are closed"):
        update.result(DEADLINE_S)


# --- Coming, leaving and coming back -------------------------------------------------------------------------------


def test_the_last_two_cannot_both_leave():
    with samplers(2) as sampler:
        futures = sampler.submit(asked(*((0, prompt) for prompt in range(6)), tokens=20))
        first, second = sampler.groups
        sampler.detach(first)
        with pytest.raises(ValueError, match="sampler-1 is the only sampler"):
            sampler.detach(second)
        assert len(results(futures)) == 6
        with pytest.raises(ValueError, match="sampler-0 is not a sampler here"):
            sampler.detach(first)


class Dead(CountingEngine):
    def step(self, seconds):
        raise EngineFault("the engine is dead")


def test_samplers_that_were_given_up_come_back_when_all_is_started_anew():
    with samplers(make=first_then(Dead)) as sampler:
        (future,) = sampler.submit(asked((0, 0)))
        with pytest.raises(EngineFault, match="the engine is dead"):
            future.result(DEADLINE_S)
        with pytest.raises(WorkerDied, match="no sampler is left"):
            sampler.submit(asked((0, 0)))
        with pytest.raises(WorkerDied, match="weights of version 1: no sampler is left"):
            sampler.update_weights(1, numbered(1)).result(DEADLINE_S)
        sampler.restart()
        assert len(results(sampler.submit(asked((0, 0))))) == 1


def test_samplers_that_were_given_up_come_back_also_when_starting_anew_fails_at_first():
    numbers = count()

    def make() -> SamplerWorker:
        number = next(numbers)
        if number == 1:
            raise WorkerDied("it was killed while it was made")
        return CountingWorker(Dead() if number == 0 else CountingEngine())

    with samplers(make=make) as sampler:
        (future,) = sampler.submit(asked((0, 0)))
        with pytest.raises(EngineFault, match="the engine is dead"):
            future.result(DEADLINE_S)
        with pytest.raises(WorkerDied, match="while it was made"):
            sampler.restart()
        sampler.restart()
        assert len(results(sampler.submit(asked((0, 0))))) == 1


def test_two_that_die_at_once_lose_nothing():
    made = Counter()
    both = threading.Barrier(2)

    class Dying(CountingEngine):
        def step(self, seconds):
            both.wait(DEADLINE_S)
            raise EngineFault("the engine is dead")

    def make() -> SamplerWorker:
        made["engines"] += 1
        return CountingWorker(Dying() if made["engines"] <= 2 else CountingEngine())

    with samplers(2, make=make, restarts=1) as sampler:
        seeds = [(0, prompt) for prompt in range(6)]
        assert seeds_of(results(sampler.submit(asked(*seeds)))) == [str(seed) for seed in seeds]


def test_a_sampler_that_waits_for_its_turn_on_the_devices_has_not_failed():
    goes_on, said = threading.Event(), []
    pool = ResourcePool("shared")
    group = WorkerGroup(pool, lambda: CountingWorker(CountingEngine()), name="sampler")
    sampler = SamplerPool([group], timeout_s=2.0, restarts=1, say=said.append)
    other = pool.submit(lambda: goes_on.wait(DEADLINE_S))
    (future,) = sampler.submit(asked((0, 0)))
    with pytest.raises(TimeoutError):
        future.result(3.0)  # for longer than a call may take
    goes_on.set()
    assert future.result(DEADLINE_S).finish_reason is FinishReason.STOP
    assert other.result(DEADLINE_S)
    assert not said
    sampler.close()
    pool.close()


def test_what_samplers_do_can_be_read():
    with samplers() as sampler:
        endless(sampler)
        sampler.update_weights(3, numbered(3)).result(DEADLINE_S)
        head, line = sampler.state().splitlines()
        assert head == "0 requests wait for a sampler"
        assert line.startswith("sampler-0: ")
        assert "weights of version 3; engine 0: 1 requests run, 0 wait" in line
