"""Candidates, the recommended one, plans as files, and whether a plan is of the run in whose folder it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose.plan_from_runs import settings_for
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import DataError
from autoclave.planning.calibration import Rates
from autoclave.planning.profile import Profile, Work
from autoclave.planning.schedule_plan import (
    PLAN_FORMAT,
    PLAN_NAME,
    Candidate,
    SchedulePlan,
    candidate_lines,
    every_split,
    read_plan,
    recommend,
    simulate_each,
    split_of,
    work_of,
    write_plan,
)
from autoclave.planning.simulation import ScheduleName, Split, simulate
from tests.planning.profiles import tiny

SHARES = {"sampler": 1.0, "judge": 0.5}
ONE_OFF = Candidate(ScheduleName.ONE_OFF_PIPELINE, Split(1, 1), 1, 2.0, SHARES)
STALE = Candidate(ScheduleName.ASYNCHRONOUS, Split(1, 1), 2, 1.75, SHARES)
IN_TURNS = Candidate(ScheduleName.SYNCHRONOUS, Split.time_sharing(1), 0, 3.0, SHARES)
APART = ("pools.main.executor=spawn", "pools.samplers.executor=spawn", "workers.sampler=samplers")


def settings(*words: str) -> dict[str, Any]:
    return load(TrainConfig, None, [parse_override(word) for word in words]).config.model_dump(mode="json")


def plan(*words: str) -> SchedulePlan:
    rates = Rates(1.0, 0.1, 8, 2, 0.5, 0.1)
    candidates = [STALE, ONE_OFF, IN_TURNS]
    return SchedulePlan(PLAN_FORMAT, work_of(settings(*words)), rates, [(1.0, 9.0)], 0.0, 1.2, 3.1, candidates, ONE_OFF)


def test_a_plan_that_was_written_is_read_again(tmp_path: Path):
    assert read_plan(tmp_path) is None
    write_plan(plan(), tmp_path)
    assert read_plan(tmp_path) == plan()


def test_a_file_of_another_format_or_a_damaged_one_is_an_error(tmp_path: Path):
    path = write_plan(plan(), tmp_path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"format": "plan/9"}))
    with pytest.raises(DataError, match=f'{PLAN_NAME}: format = "plan/9": must be'):
        read_plan(tmp_path)
    path.write_text(json.dumps(content | {"overlap_slowdown": "fast"}))
    with pytest.raises(DataError, match="overlap_slowdown"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), IN_TURNS),
        (("schedule.name=one_off_pipeline", *APART), ONE_OFF),
        (("schedule.name=asynchronous", "schedule.max_staleness=2", *APART), STALE),
        (("schedule.name=asynchronous", "schedule.max_staleness=1", *APART), None),
        (("schedule.name=one_off_pipeline", *APART, "pools.samplers.processes=2"), None),
        (("group_size=4",), None),
        (("sampler.max_new_tokens=32",), None),
    ],
)
def test_a_plan_speaks_of_runs_that_do_the_same_work_as_one_of_its_candidates(words, expected):
    assert plan().of(settings(*words)) == expected


def test_the_split_is_that_of_the_pools():
    assert split_of(settings()) == Split(1, 1, is_shared=True)
    assert split_of(settings(*APART, "pools.samplers.processes=3")) == Split(3, 1)


@pytest.mark.parametrize("own", [(), APART, (*APART, "pools.samplers.processes=3", "pools.main.processes=2")])
@pytest.mark.parametrize(
    "chosen", [ONE_OFF, STALE, Candidate(ScheduleName.MINIBATCH_PIPELINE, Split(2, 3), 0, 1.0, SHARES)]
)
def test_recommended_settings_run_as_recommended(own: tuple[str, ...], chosen: Candidate):
    config = settings(*own, *settings_for(chosen, settings(*own)).split())
    assert config["schedule"]["name"] == chosen.schedule
    assert split_of(config) == chosen.split
    if chosen is STALE:
        assert config["schedule"]["max_staleness"] == 2


# --- Candidates ----------------------------------------------------------------------------------------------------


def simulated(
    profile: Profile, splits: Iterable[Split], staleness: Sequence[int] = (), slowdown: float = 1.0
) -> list[Candidate]:
    splits = list(splits)
    return [
        each
        for name in ScheduleName
        for each in simulate_each(profile, name, splits, staleness=staleness, overlap_slowdown=slowdown)
    ]


def test_every_schedule_is_simulated_on_every_split_that_it_can_run_on():
    names = [each.name for each in simulated(tiny(), every_split(3), (1, 2))]
    assert len(set(names)) == len(names) == 1 + 2 * 5
    assert {"synchronous 3 shared", "one_off_pipeline 1:2", "asynchronous(2) 2:1"} <= set(names)


def test_of_schedules_that_are_equally_fast_the_one_nearest_to_on_policy_is_taken():
    # Judging, learning and publishing cost nothing, so samples of older weights gain nothing.
    works = (Work(0, 2, 0.0), Work(1, 4, 0.0))
    profile = tiny(iterations=(works,) * 4, train_ms_per_token=0.0, sync_s=0.0, slots=1)
    assert recommend(simulated(profile, [Split(1, 1)], (1, 2))).schedule is ScheduleName.SYNCHRONOUS


def test_where_learning_takes_as_long_as_sampling_a_pipeline_is_taken_unless_overlap_slows_it_down():
    profile = tiny(iterations=8, train_ms_per_token=1000.0, sync_s=0.0)
    fast, slow = (simulated(profile, [Split(1, 1)], slowdown=slowdown) for slowdown in (1.0, 3.0))
    assert recommend(fast).schedule is ScheduleName.ONE_OFF_PIPELINE
    assert recommend(slow).schedule is ScheduleName.SYNCHRONOUS
    one_off = [
        next(each.seconds for each in found if each.schedule is ScheduleName.ONE_OFF_PIPELINE) for found in (fast, slow)
    ]
    assert one_off[1] == pytest.approx(3 * one_off[0])


def test_seconds_of_a_long_pipeline_are_those_of_its_bottleneck():
    # Everything is learnt from at once on one device: 6 tokens of 5 s, and a publish of 1 s.
    profile = tiny(iterations=4, train_ms_per_token=5000.0)
    for candidate in simulated(profile, [Split(1, 1)], (1, 2, 4)):
        if candidate.max_staleness:
            assert candidate.seconds == pytest.approx(31)
    alone = simulate(profile, ScheduleName.ASYNCHRONOUS, Split(1, 1), max_staleness=2)
    assert alone.steady_s == alone.whole_s  # too few iterations to have a steady part


def test_the_table_marks_the_one_to_take():
    candidates = sorted(simulated(tiny(), every_split(4), (1,)), key=lambda each: each.seconds)
    chosen = recommend(candidates)
    lines = list(candidate_lines(replace(plan(), candidates=candidates, chosen=chosen), rows=3))
    (marked,) = [line for line in lines if line.startswith("->")]
    assert chosen.name in marked
    assert lines[-1].strip().endswith("slower ones")
