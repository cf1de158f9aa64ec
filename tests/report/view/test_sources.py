from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.report.view import Request
from autoclave.report.view.survey import ranges, sources_of


@pytest.fixture
def runs(record: Callable[..., Path]) -> tuple[Path, Path]:
    """One run with steps 1, 2, 3 and 5, another with 2, 3 and 4; the files hold nothing."""
    return record({step: [] for step in (1, 2, 3, 5)}, "one"), record({step: [] for step in (2, 3, 4)}, "other")


def places(request: Request) -> list[tuple[str, int]]:
    return [(source.run.folder.name, source.step) for source in sources_of(request)]


def test_of_one_run_the_first_and_the_last_step_are_shown(runs):
    assert places(Request(runs[0])) == [("one", 1), ("one", 5)]


def test_steps_are_shown_in_order_and_once(runs):
    assert places(Request(runs[0], steps=(5, 2, 5))) == [("one", 2), ("one", 5)]


def test_a_problem_is_looked_for_in_all_steps(runs):
    assert places(Request(runs[0], problems=("x",))) == [("one", step) for step in (1, 2, 3, 5)]


def test_two_runs_are_compared_at_the_last_step_that_both_have(runs):
    assert places(Request(runs[0], against=runs[1])) == [("other", 3), ("one", 3)]


def test_each_side_of_a_comparison_can_have_a_step_of_its_own(runs):
    request = Request(runs[0], against=runs[1], steps=(5,), against_step=2)
    assert places(request) == [("other", 2), ("one", 5)]
    assert [source.label for source in sources_of(request)] == [f"{runs[1]}, step 2", f"{runs[0]}, step 5"]


def test_a_run_is_compared_with_an_earlier_step_of_its_own(runs):
    assert places(Request(runs[0], against_step=1)) == [("one", 1), ("one", 5)]
    assert [source.label for source in sources_of(Request(runs[0], against_step=1))] == ["step 1", "step 5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"steps": (4,)}, "--step 4: {one} has no rollouts of it; recorded are 1 to 3, 5"),
        ({"steps": (3,), "against_step": 9}, "--against-step 9: {one} has no rollouts of it; recorded are 1 to 3, 5"),
        ({"steps": (1, 2), "against_step": 3}, "--step 2: a comparison takes one step of a run; give --step once"),
        ({"steps": (3,), "against_step": 3}, "--against-step: step 3 of {one} would be compared with itself"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_shown_is_named(runs, words, message):
    with pytest.raises(InputError) as error:
        sources_of(Request(runs[0], **words))
    assert str(error.value).startswith(message.format(one=runs[0]))


def test_a_run_against_itself_needs_another_step_also_by_another_path(runs):
    with pytest.raises(InputError, match="would be compared with itself"):
        sources_of(Request(runs[0], against=runs[1].parent / "other" / ".." / "one"))


def test_runs_without_a_common_step_need_two(record):
    one, other = record({1: []}, "one"), record({2: []}, "other")
    with pytest.raises(InputError, match="have no step in common; give --step and --against-step"):
        sources_of(Request(one, against=other))


def test_a_run_before_its_first_step_has_nothing_to_show(record):
    with pytest.raises(InputError, match="no rollouts recorded; they are written after the first step"):
        sources_of(Request(record({})))


def test_neighbouring_numbers_are_told_as_a_range():
    assert ranges([1]) == "1"
    assert ranges([1, 2, 4, 7, 8, 9]) == "1 to 2, 4, 7 to 9"
