"""Plans of schedules as files, and whether a plan speaks of the run in whose folder it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose.plan_from_runs import settings_for
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import DataError
from autoclave.planning import ScheduleName, Split
from autoclave.planning.plan_file import (
    PLAN_FORMAT,
    PLAN_NAME,
    Predicted,
    Rates,
    SchedulePlan,
    read_plan,
    split_of,
    work_of,
    write_plan,
)

ONE_OFF = Predicted(ScheduleName.ONE_OFF_PIPELINE, 1, 1, False, 1, 2.0)
STALE = Predicted(ScheduleName.ASYNCHRONOUS, 1, 1, False, 2, 1.75)
IN_TURNS = Predicted(ScheduleName.SYNCHRONOUS, 1, 1, True, 0, 3.0)
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
@pytest.mark.parametrize("chosen", [ONE_OFF, STALE, Predicted(ScheduleName.MINIBATCH_PIPELINE, 2, 3, False, 0, 1.0)])
def test_recommended_settings_run_as_recommended(own: tuple[str, ...], chosen: Predicted):
    config = settings(*own, *settings_for(chosen, settings(*own)).split())
    assert config["schedule"]["name"] == chosen.schedule
    assert split_of(config) == Split(chosen.samplers, chosen.trainers)
    if chosen is STALE:
        assert config["schedule"]["max_staleness"] == 2
