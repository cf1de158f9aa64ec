"""Split problems into sub-tasks of one example each, and these into training and test. Pure.

The split depends on the seed and the problem alone, so all models are probed on the same split.
"""

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from autoclave.core import CallTests, Problem, StdinTests
from autoclave.core.trace import literal
from autoclave.tasks.alignment_samples import input_of


@dataclass(frozen=True, slots=True)
class SubTask:
    """A problem whose statement ends with one of its examples, which is also its only test.

    Attributes:
        task: index of the original problem.
        problem: the problem with the example.
        given: the input of the example, as text.
        is_test: True on the test side of the split.
    """

    task: int
    problem: Problem
    given: str
    is_test: bool


def subtasks_of(
    problems: Sequence[Problem], *, test_share: float, seed: int, most: int | None = None, longest: int = 2000
) -> list[SubTask]:
    """Return the sub-tasks of each problem whose programs can be traced.

    Args:
        problems: only those in Python with `stdin` or `call` tests have sub-tasks.
        test_share: share of the sub-tasks of each problem, rounded; at least one is for training.
        seed: of the split.
        most: limit of sub-tasks of a problem, sampled by its id; None for all.
        longest: limit of characters of an example; longer ones are left out.
    """
    found: list[SubTask] = []
    for task, problem in enumerate(problems):
        cases = _distinct(problem, longest)
        if most is not None and len(cases) > most:
            cases = sorted(random.Random(f"examples of {problem.id}").sample(cases, most))
        tested = places_to_test(len(cases), test_share=test_share, seed=f"{seed} {problem.id}")
        found += [
            SubTask(task, _with_example(problem, case), input_of(problem, case) or "", place in tested)
            for place, case in enumerate(cases)
        ]
    return found


def places_to_test(count: int, *, test_share: float, seed: str) -> frozenset[int]:
    """Choose the test sub-tasks of one problem: their share, rounded, and never all of them."""
    tested = max(0, min(count - 1, int(count * test_share + 0.5)))
    return frozenset(random.Random(seed).sample(range(count), tested))


def leaks(runs: Sequence[tuple[Hashable, bool]]) -> frozenset[int]:
    """Return the indices of test runs that are also training runs; a run is `(program and input, is_test)`."""
    trained = {key for key, is_test in runs if not is_test}
    return frozenset(index for index, (key, is_test) in enumerate(runs) if is_test and key in trained)


def _distinct(problem: Problem, longest: int) -> list[int]:
    """Return the tests that serve as examples, each input once."""
    if problem.language != "python" or not isinstance(problem.tests, StdinTests | CallTests):
        return []
    first: dict[str, int] = {}
    for case in range(len(problem.tests.cases)):
        given = input_of(problem, case) or ""
        if len(given) + len(_output(problem, case)) <= longest:
            first.setdefault(given, case)
    return list(first.values())


def _output(problem: Problem, case: int) -> str:
    tests = problem.tests
    if isinstance(tests, CallTests):
        return literal(tests.cases[case].output)
    return tests.cases[case].output if isinstance(tests, StdinTests) else ""


def _with_example(problem: Problem, case: int) -> Problem:
    tests = problem.tests
    if not isinstance(tests, StdinTests | CallTests):
        raise ValueError(f"tests of kind {tests.kind!r} have no examples")
    given, output = (input_of(problem, case) or "").rstrip("\n"), _output(problem, case).rstrip("\n")
    is_short = isinstance(tests, CallTests) or "\n" not in given + output
    example = f"{given} -> {output}" if is_short else f"Input:\n{given}\nOutput:\n{output}"
    return replace(
        problem,
        id=f"{problem.id}#{case}",
        statement=f"{problem.statement}\n{example}",
        tests=replace(tests, cases=[tests.cases[case]]),  # pyright: ignore[reportArgumentType]
    )
