"""Which runs are traced after a step: failed responses on the tests that they failed, then on others. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Literal

import numpy as np

from autoclave.core import CallTests, Group, Problem, Rollout, Status, StdinTests, TaskItem
from autoclave.judge.traces import is_traceable


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program and a test of its problem, by which it is to be run once more."""

    problem: Problem
    program: str
    test: int
    version: int
    """Of the policy that wrote it: the oldest weights that sampled a token of it."""
    others: tuple[int, ...] = ()
    """Tests by which it may be run too, where that run is a lesson."""


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
    """A run of each program that `groups` offer, with its other tests; of each problem one after the other, so that the
    first of a list are of many problems.

    `failed` are wrong answers, on the test that they failed and others. `random` are also programs that passed, and
    failed otherwise, on tests that are drawn. Only programs and tests that `fits` allows are offered. In which order
    groups completed changes nothing.
    """
    rollouts = sorted((r for group in groups for r in group.rollouts), key=lambda rollout: rollout.request)
    draw = np.random.default_rng(seed)
    by_problem: defaultdict[str, list[Candidate]] = defaultdict(list)
    for rollout in rollouts:
        found = _of_rollout(rollout, program_of, programs == "failed", fits, draw, tests_per_program)
        if found:
            by_problem[found.problem.id].append(found)
    names = sorted(by_problem)
    order = [by_problem[names[index]] for index in draw.permutation(len(names))]
    return [each for one_of_each in zip_longest(*order) for each in one_of_each if each]


def _of_rollout(
    rollout: Rollout,
    program_of: ProgramOf,
    only_failed: bool,
    fits: Callable[[str, Problem, int], bool],
    draw: np.random.Generator,
    tests_per_program: int,
) -> Candidate | None:
    problem, verdict = rollout.item.payload, rollout.reward.verdict
    if not isinstance(problem, Problem) or verdict is None or verdict.status is None:
        return None
    if not is_traceable(problem) or not isinstance(problem.tests, StdinTests | CallTests):
        return None
    if only_failed and verdict.status is not Status.WRONG_ANSWER:
        return None
    program = program_of(rollout.item, rollout.completion.text)
    if program is None:
        return None
    drawn = draw.permutation(len(problem.tests.cases)).tolist()
    first = [verdict.failing_test] if only_failed and verdict.failing_test is not None else []
    version = min((version for version, _, _ in rollout.completion.policy_versions), default=0)
    fitting = (test for test in dict.fromkeys([*first, *drawn]) if fits(program, problem, test))
    tests = tuple(islice(fitting, tests_per_program))
    return Candidate(problem, program, tests[0], version, tests[1:]) if tests else None


def on_other_tests(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same programs on their other tests: each program once more, then each a third time, and so on."""
    rounds = zip_longest(*([replace(each, test=test, others=()) for test in each.others] for each in candidates))
    return [each for round in rounds for each in round if each]
