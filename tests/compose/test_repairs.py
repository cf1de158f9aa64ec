"""Demonstrations of later turns: what is read before them is what the task lets a policy read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoclave.compose.host import build_judge
from autoclave.compose.tasks import repair_demonstrations
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import ConfigError, Fault, InputError, IsolationError, JudgeFault, Status, Verdict
from autoclave.core.futures import completed

RECIPE = Path(__file__).parents[2] / "recipes" / "repair.yaml"


def settings(*changes: str) -> TrainConfig:
    return load(TrainConfig, RECIPE, [parse_override(change) for change in changes]).config


def test_later_turns_are_demonstrated_after_what_the_task_says_of_the_attempts_before():
    config = settings("problems.train=8", "problems.validation=1", "problems.heldout=200", "judge.workers=1")
    try:
        judge = build_judge(config.judge, config.sandbox)
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with judge:
        found = repair_demonstrations(config, judge, 60)
    assert len(found) == 60
    assert {len(each.messages) for each in found} == {3, 5}
    for each in found:
        asked, *later = each.messages
        assert asked["content"].startswith(("f(x) on a list", "read integers x"))
        for attempt, told in zip(later[::2], later[1::2], strict=True):
            assert (attempt["role"], told["role"]) == ("assistant", "user")
            assert attempt["content"].startswith("```python\n")
            assert "\nExpected:\n" in told["content"]
    assert any(each.is_right for each in found)
    assert not all(each.is_right for each in found)


@pytest.mark.parametrize(
    ("verdict", "error", "message"),
    [
        (Verdict.none(Fault("sandbox", "no cell")), JudgeFault, "no cell"),
        (Verdict.of(Status.ACCEPTED), InputError, "512 attempts pass the public tests"),
    ],
)
def test_a_judge_that_finds_nothing_to_repair_is_not_asked_for_ever(
    verdict: Verdict, error: type[Exception], message: str
):
    judge: Any = SimpleNamespace(submit=lambda job: completed(verdict))
    with pytest.raises(error, match=message):
        repair_demonstrations(settings("problems.train=8", "problems.validation=1", "problems.heldout=200"), judge, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("task={name: code_generation, template: plain}", "sft.repair_share = 0.5: needs task.turns above 1"),
        ("problems={name: functions}", "sft.repair_share = 0.5: needs task.turns above 1"),
        ("problems.domains=[integer]", "unsaid = 0.6: nothing is appended to an integer"),
    ],
)
def test_settings_without_anything_to_repair_are_refused(change: str, message: str):
    with pytest.raises(ConfigError) as caught:
        settings(change)
    assert message in str(caught.value)
