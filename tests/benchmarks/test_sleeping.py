"""Stages that sleep take as long as the simulation of the same profile says, on a clock that only they move."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sleeping import SleepingEngine, SleepingJudge, SleepingTrainer, Slots
from workbook import Scale, Workbook, requests
from workloads import CODE, MATHEMATICS, generate

from autoclave.core import Completion, FinishReason
from autoclave.core.timeline import Role
from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import ScheduleName, Split, simulate
from tests.planning.profiles import profiles, tiny

SCALE = Scale(time=200.0)


class OwnTime:
    """A clock that moves when somebody sleeps, and then too far by what `late` says."""

    def __init__(self, late: Callable[[], float] = lambda: 0.0) -> None:
        self.seconds = 0.0
        self._late = late

    def now(self) -> float:
        return self.seconds

    def sleep_until(self, moment: float) -> None:
        self.seconds = max(self.seconds, moment) + self._late()


def ends(engine: SleepingEngine, clock: OwnTime, profile: Profile, *, between_steps: float = 0.0) -> dict[str, float]:
    """When each response of the first iteration is handed over, in seconds of the profile; 10 real ms a step."""
    asked = [request for group in requests(Workbook(profile), 0) for request in group]
    engine.add(dict(enumerate(asked)))
    found: dict[str, float] = {}
    while engine.stats.running:
        for _, completion in engine.step(0.01):
            found[completion.text] = clock.seconds * SCALE.time
        clock.seconds += between_steps
    for _, completion in engine.step(0.01):
        found[completion.text] = clock.seconds * SCALE.time
    return found


def expected(profile: Profile) -> dict[str, float]:
    """The same, simulated, by the text of the response."""
    run = simulate(replace(profile, iterations=profile.iterations[:1]), ScheduleName.SYNCHRONOUS, Split(1, 1))
    names = [f"0 {item} {sample}" for item, size in enumerate(Workbook(profile).sizes(0)) for sample in range(size)]
    return {names[int(span.name)]: span.end for span in run.of(Role.SAMPLER)}


@given(profiles())
def test_a_sleeping_engine_hands_over_what_the_simulated_device_has_done_when_it_has(profile: Profile):
    clock = OwnTime()
    assert ends(SleepingEngine(profile, SCALE, time=clock), clock, profile) == pytest.approx(
        expected(profile), abs=1e-6
    )


@pytest.mark.parametrize("workload", [MATHEMATICS, CODE], ids=lambda workload: workload.name)
def test_being_late_does_not_add_up(workload):
    rng = np.random.default_rng(0)
    profile, worst = generate(workload), 0.001
    clock = OwnTime(late=lambda: float(rng.uniform(0, worst)))
    found = ends(SleepingEngine(profile, SCALE, time=clock), clock, profile, between_steps=0.0005)
    for name, end in expected(profile).items():
        assert end - 1e-6 <= found[name] <= end + (worst + 0.0005) * SCALE.time + 1e-6  # of one step, not of hundreds


def test_with_stops_between_steps_time_passes_in_steps_only():
    profile = tiny()
    clock = OwnTime()
    engine = SleepingEngine(profile, SCALE, time=clock, stops_between_steps=True)
    found = ends(engine, clock, profile, between_steps=1.0)
    # The longer response takes 7 s of the profile, 35 real ms, in steps of 10 ms; the third ends with the first one.
    assert found == pytest.approx({"0 0 0": 4 + 200, "0 1 0": 7 + 3 * 200})


def test_a_step_is_not_longer_than_it_may_be():
    clock = OwnTime()
    engine = SleepingEngine(tiny(), SCALE, time=clock)
    assert engine.step(0.01) == []
    assert clock.seconds == 0  # nothing to do
    engine.add({7: requests(Workbook(tiny()), 0)[1][0]})
    assert engine.step(0.01) == []
    assert clock.seconds == 0.01
    assert engine.stats.running == 1


def step_to_end(engine: SleepingEngine) -> dict[int, Completion]:
    done = dict(engine.step(1.0))
    while engine.stats.running:
        done |= dict(engine.step(1.0))
    return done | dict(engine.step(1.0))


def test_a_completion_is_as_long_as_the_profile_says_and_names_its_place():
    profile = tiny(iterations=((Work(3, 10, 0.0), Work(3, 11, 0.0), Work(5, 12, 0.0)),))
    engine = SleepingEngine(profile, Scale(tokens=4), time=OwnTime())
    asked = [request for group in requests(Workbook(profile), 4) for request in group]  # iterations come round again
    engine.add(dict(zip("abc", asked, strict=True)))  # type: ignore[arg-type]
    done = step_to_end(engine)
    assert {number: (len(c.tokens), c.text) for number, c in done.items()} == {
        "a": (3, "4 0 0"),
        "b": (3, "4 0 1"),
        "c": (3, "4 1 0"),
    }
    assert all(completion.finish_reason is FinishReason.STOP for completion in done.values())
    assert engine.stats.sampled_tokens == 33


def test_tokens_are_stamped_with_the_version_that_sampled_them():
    clock = OwnTime()
    engine = SleepingEngine(tiny(), SCALE, time=clock)
    short, long = (group[0] for group in requests(Workbook(tiny()), 0))
    engine.update_weights(3, {})
    engine.add({0: short, 1: long})
    engine.step(1.0)  # to 4 s, when both have 2 tokens
    clock.seconds += 1.6 / SCALE.time  # 1.5 s a token alone
    engine.update_weights(4, {})
    (completion,) = step_to_end(engine).values()
    assert completion.policy_versions == ((3, 0, 3), (4, 3, 4))


def test_a_closed_engine_has_nothing():
    engine = SleepingEngine(tiny(), SCALE, time=OwnTime())
    engine.add({0: requests(Workbook(tiny()), 0)[0][0]})
    engine.close()
    assert engine.step(1.0) == []


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), max_size=20), st.integers(1, 4))
def test_slots_are_those_of_the_simulated_judge(asked: list[tuple[float, float]], count: int):
    now, slots, busy = 0.0, Slots(count), [0.0] * count
    for pause, seconds in asked:
        now += pause
        slot = min(range(count), key=lambda i: busy[i])
        busy[slot] = max(now, busy[slot]) + seconds
        assert slots.take(now, seconds) == pytest.approx(busy[slot])


def test_rewards_come_in_the_order_in_which_their_time_is_up():
    works = tuple(Work(0, 1, reward_s) for reward_s in (6.0, 2.0, 2.0, 0.0))
    profile = tiny(judge_slots=2, iterations=(works,))
    judge = SleepingJudge(profile, SCALE)  # 30, 10, 10 and 0 real ms
    order: list[int] = []
    rollouts = [SimpleNamespace(last=SimpleNamespace(text=f"0 0 {sample}")) for sample in range(4)]
    futures = [judge(rollout) for rollout in rollouts]
    for sample, future in enumerate(futures):
        future.add_done_callback(lambda _, sample=sample: order.append(sample))
    done, _ = wait(futures, timeout=60)
    judge.close()
    assert len(done) == 4
    assert order == [1, 2, 3, 0]
    assert [future.result().value for future in futures] == [0, 1, 0, 1]


def test_the_trainer_sleeps_as_long_as_its_devices_learn_and_publish():
    clock = OwnTime()
    trainer = SleepingTrainer(tiny(), 2, Scale(time=100.0, tokens=4), time=clock)
    trainer.learn(10)  # 40 tokens of 0.5 s on 2 devices
    assert clock.seconds == pytest.approx(0.1)
    trainer.publish()
    assert clock.seconds == pytest.approx(0.11)
