"""Choice of the runs that are traced after a step: failed responses on the tests that they failed, then on others.
Pure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Literal, TypeVar

import numpy as np

from autoclave.core import CallTests, Group, Problem, Rollout, Status, StdinTests, TaskItem
from autoclave.judge.traces import is_traceable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program and a test of its problem, by which it is to be run once more."""

    problem: Problem
    program: str
    test: int
    version: int
    """Of the policy that wrote it: the oldest weights that sampled a token of it."""


ProgramOf = Callable[[TaskItem, str], str | None]
"""From an item and a response to the program in it, if the item asked for one."""


def candidates(
    groups: Sequence[Group],
    program_of: ProgramOf,
    *,
    programs: Literal["failed", "random"],
    tests_per_program: int,
    fits: Callable[[str, Problem, int], bool],
    seed: tuple[int, ...],
) -> list[Candidate]:
    """The runs that `groups` offer: one of each program, then another of each, and so on, up to so many of a program.
    Programs of different problems stand first, so that the first of a list are of many problems.

    `failed` are wrong answers, on the test that they failed and others. `random` are also programs that passed, and
    failed otherwise, on tests that are drawn. Only programs and tests that `fits` allows are offered. In which order
    groups completed changes nothing.
    """
    rollouts = sorted((r for group in groups for r in group.rollouts), key=lambda rollout: rollout.request)
    draw = np.random.default_rng(seed)
    by_problem: defaultdict[str, dict[str, list[Candidate]]] = defaultdict(dict)
    for rollout in rollouts:
        found = _of_rollout(rollout, program_of, programs == "failed", fits, draw, tests_per_program)
        if found:
            by_problem[found[0].problem.id].setdefault(found[0].program, found)  # the same may be written twice
    names = sorted(by_problem)
    order = _one_of_each(list(by_problem[names[index]].values()) for index in draw.permutation(len(names)))
    return _one_of_each(order)


def _one_of_each(lists: Iterable[Sequence[T]]) -> list[T]:
    """The first of each list, then the second of each, to the end of the longest."""
    return [each for row in zip_longest(*lists) for each in row if each is not None]


def _of_rollout(
    rollout: Rollout,
    program_of: ProgramOf,
    only_failed: bool,
    fits: Callable[[str, Problem, int], bool],
    draw: np.random.Generator,
    tests_per_program: int,
) -> list[Candidate]:
    problem, verdict = rollout.item.payload, rollout.reward.verdict
    if not isinstance(problem, Problem) or verdict is None or verdict.status is None:
        return []
    if not is_traceable(problem) or not isinstance(problem.tests, StdinTests | CallTests):
        return []
    if only_failed and verdict.status is not Status.WRONG_ANSWER:
        return []
    program = program_of(rollout.item, rollout.last.text)
    if program is None:
        return []
    drawn = draw.permutation(len(problem.tests.cases)).tolist()
    first = [verdict.failing_test] if only_failed and verdict.failing_test is not None else []
    version = min((version for version, _, _ in rollout.last.policy_versions), default=0)
    fitting = (test for test in dict.fromkeys([*first, *drawn]) if fits(program, problem, test))
    tests = islice(fitting, tests_per_program)
    return [Candidate(problem, program, test, version) for test in tests]
