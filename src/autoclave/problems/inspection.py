"""Inspect files of problems: statistics of a set, differences of two, and a sample."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from statistics import median

from autoclave.core import CallTests, Problem, StdinTests


@dataclass(frozen=True, slots=True)
class SetStatistics:
    """Statistics of a set of problems. `num_tests` is (least, median, greatest) of problems with test cases."""

    num_problems: int
    num_with_solutions: int
    kinds: dict[str, int]
    sources: dict[str, int]
    difficulties: dict[str, int]
    languages: dict[str, int]
    released: tuple[str, str] | None
    num_tests: tuple[int, float, int] | None


def statistics_of(problems: Iterable[Problem]) -> SetStatistics:
    kinds, sources, difficulties, languages = (Counter[str]() for _ in range(4))
    tests: list[int] = []
    days: list[str] = []
    num_problems = num_with_solutions = 0
    for problem in problems:
        num_problems += 1
        num_with_solutions += bool(problem.solutions)
        kinds[problem.tests.kind] += 1
        sources[problem.source] += 1
        difficulties[problem.difficulty] += 1
        languages[problem.language] += 1
        if isinstance(problem.tests, StdinTests | CallTests):
            tests.append(len(problem.tests.cases))
        if problem.released:
            days.append(problem.released.isoformat())
    return SetStatistics(
        num_problems,
        num_with_solutions,
        dict(kinds.most_common()),
        dict(sources.most_common()),
        dict(difficulties.most_common()),
        dict(languages.most_common()),
        (min(days), max(days)) if days else None,
        (min(tests), median(tests), max(tests)) if tests else None,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A problem that is in one set only, or differs. `fields` are the names of those that differ."""

    id: str
    kind: str
    fields: tuple[str, ...] = ()


ONLY_FIRST, ONLY_SECOND, CHANGED = "only in the first", "only in the second", "changed"


def differences(first: Iterable[Problem], second: Iterable[Problem]) -> Iterator[Difference]:
    """Yield the differences of two sets, by id. The first set is held in memory."""
    known = {problem.id: problem for problem in first}
    for problem in second:
        other = known.pop(problem.id, None)
        if other is None:
            yield Difference(problem.id, ONLY_SECOND)
        elif other != problem:
            names = (field.name for field in fields(Problem))
            changed = tuple(name for name in names if getattr(other, name) != getattr(problem, name))
            yield Difference(problem.id, CHANGED, changed)
    for id in known:
        yield Difference(id, ONLY_FIRST)


def sample(problems: Iterable[Problem], count: int, seed: int) -> list[Problem]:
    """Return a uniform sample of at most `count` problems in their order (Vitter 1985, algorithm R)."""
    draw = random.Random(seed)
    chosen: list[tuple[int, Problem]] = []
    for number, problem in enumerate(problems):
        if number < count:
            chosen.append((number, problem))
        elif (place := draw.randrange(number + 1)) < count:
            chosen[place] = (number, problem)
    return [problem for _, problem in sorted(chosen, key=lambda pair: pair[0])]
