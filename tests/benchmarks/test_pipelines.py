"""The benchmark of schedules: each runs on sleeping processes, all of its work is done, in the order that it says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pipelines
import pytest
from sleeping_run import Plan, RewardsAfterSampling, open_devices, run_schedule
from workbook import Scale, Workbook

from autoclave.core import Reward, Rollout
from autoclave.core.timeline import Role
from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import ScheduleName
from autoclave.training.schedules import synchronous
from autoclave.workers import WorkerGroup
from tests.planning.profiles import tiny
from tests.training_parts import DEADLINE_S, settled

pytestmark = pytest.mark.timeout(4 * DEADLINE_S)
FAST = Scale(time=1000.0, tokens=2)
RESPONSES = tuple(Work(group, tokens, 1.0) for group in range(4) for tokens in (2, 5 + group))
PROFILE = tiny(iterations=(RESPONSES, RESPONSES), slots=4, judge_slots=2, devices=2)


@pytest.fixture(scope="module")
def devices() -> Iterator[list[WorkerGroup]]:
    with open_devices(2) as opened:
        yield opened


def test_every_schedule_runs_and_none_beats_its_simulation(devices: list[WorkerGroup]):
    found = pipelines.measure(PROFILE, FAST, 1, devices)
    assert list(found) == list(ScheduleName)
    for schedule, result in found.items():
        iterations = 2 + (2 * pipelines.STALENESS if schedule is ScheduleName.ASYNCHRONOUS else 0)
        (run,) = result.runs
        assert len(run.ends) == iterations
        for role in (Role.SAMPLER, Role.JUDGE):
            assert len(run.of(role)) == iterations * len(RESPONSES)
        assert len(run.of(Role.PUBLISH)) == iterations
        assert run.whole_s > 0.5 * result.expected.run.whole_s  # it slept for what it was asked to
    updates = found[ScheduleName.MINIBATCH_PIPELINE].run.of(Role.TRAINER)
    assert len(updates) == 2 * PROFILE.mini_batches
    shown = list(pipelines.table(found))
    assert [line.split()[0] for line in shown[1:]] == [result.expected.name.split()[0] for result in found.values()]
    figures = pipelines.figures_of({"tiny": found})
    assert figures["one_off_over_ideal"] == found[ScheduleName.ONE_OFF_PIPELINE].over_ideal
    assert set(pipelines.details_of({"tiny": found})["tiny"]) == {each.expected.name for each in found.values()}


def test_rewards_of_the_baseline_start_when_all_is_sampled(devices: list[WorkerGroup]):
    run = run_schedule(Plan(synchronous, 2, 2, rewards_after_sampling=True), PROFILE, FAST, devices)
    for iteration in range(2):
        sampled = max(span.end for span in run.of(Role.SAMPLER, iteration))
        assert min(span.end for span in run.of(Role.JUDGE, iteration)) >= sampled + 0.9  # a reward takes 1 s
    assert run.hidden_training_share() == 0


def answer(text: str) -> Any:  # all that is read of a Rollout
    return SimpleNamespace(last=SimpleNamespace(text=text))


def test_a_reward_is_asked_for_with_the_last_response_of_its_iteration():
    book = Workbook(PROFILE)
    asked: list[str] = []

    def grade(rollout: Rollout) -> Future[Reward]:
        asked.append(rollout.last.text)
        return settled(Reward(1.0, rollout.last.text))

    waits = RewardsAfterSampling(grade, book)
    names = [f"{iteration} {group} {sample}" for group in range(4) for sample in range(2) for iteration in (0, 1)]
    futures = [waits(answer(name)) for name in names[:-1]]
    assert asked == names[:-1:2]  # all of iteration 0; one of iteration 1 is missing
    futures.append(waits(answer(names[-1])))
    assert [future.result(DEADLINE_S).reason for future in futures] == names


def test_a_profile_whose_iterations_differ_in_groups_is_refused(devices: list[WorkerGroup]):
    uneven: Profile = replace(PROFILE, iterations=(RESPONSES, RESPONSES[:4]))
    with pytest.raises(ValueError, match=r"iterations have \[4, 2\] groups"):
        run_schedule(Plan(synchronous, 1, 1), uneven, FAST, devices)
