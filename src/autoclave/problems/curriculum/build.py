"""The problems of the built-in curriculum, from a seed.

Every problem is checked: its value varies with the input and is short, leaving out any operation changes the value of
several probes, and the tests fail every plausible mistake that shows on the probes, if a few draws find such tests.
No two problems behave alike, whatever their wording or style, and so none stands on both sides of the split.
Same settings, same problems, byte for byte, in any process.
Not here: demonstrations for the warm start (`teacher.py`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autoclave.config.problems import CurriculumConfig
from autoclave.core import CallCase, CallTests, ConfigError, Problem, StdinCase, StdinTests
from autoclave.problems.curriculum.behaviour import differ, mutants, outputs, probe_values, signature
from autoclave.problems.curriculum.compose import Pair, Task
from autoclave.problems.curriculum.inputs import Arguments, draw_inputs, probes
from autoclave.problems.curriculum.split import Part, Split

DEPTHS = (2, 2, 3)
"""Numbers of operations of the problems, in turn, so that every set has the same mix."""

_DIFFICULTY = {1: "easy", 2: "medium", 3: "hard"}
_TIME_LIMIT_S = 1.0
_LONGEST_OUTPUT = 400
_MOST_DRAWS_OF_TESTS = 6
_MOST_DRAWS = 20_000
_MOST_REPEATS = 500
_FEWEST_VALUES = 3
_FEWEST_DIFFERENCES = 4  # probes on which leaving out an operation shows; with fewer, hardly any test would show it


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Problems in three sets, and the pairs of adjacent operations that only one of them has.

    `kept_behaviours` are the signatures of the validation and held-out problems.
    """

    train: list[Problem]
    validation: list[Problem]
    heldout: list[Problem]
    validation_pairs: frozenset[Pair]
    heldout_pairs: frozenset[Pair]
    kept_behaviours: frozenset[str]


def build_curriculum(config: CurriculumConfig) -> Curriculum:
    """All problems that `config` asks for.

    Raises:
        ConfigError: so many different problems do not exist with this share of held-out pairs.
    """
    built = _built(config)  # pyright: ignore[reportArgumentType]  pydantic gives frozen models a hash
    lists = (list(built.train), list(built.validation), list(built.heldout))
    return Curriculum(*lists, built.validation_pairs, built.heldout_pairs, built.kept_behaviours)


@lru_cache(maxsize=2)  # the demonstrations need it again
def _built(config: CurriculumConfig) -> Curriculum:
    split = Split.of(config.seed, config.heldout_share)
    train, known = _draw(config, Part.TRAIN, config.train, split, frozenset())
    heldout, reported = _draw(config, Part.HELDOUT, config.heldout, split, known)
    validation, tuned_on = _draw(config, Part.VALIDATION, config.validation, split, known | reported)
    return Curriculum(train, validation, heldout, split.validation, split.heldout, reported | tuned_on)


def _draw(
    config: CurriculumConfig, part: Part, wanted: int, split: Split, taken: frozenset[str]
) -> tuple[list[Problem], frozenset[str]]:
    """Problems of one part and the signatures of their behaviours, all different and none of them in `taken`."""
    rng = random.Random(f"{config.seed} {part}")
    problems: dict[str, Problem] = {}
    num_in_vain = 0
    while len(problems) < wanted:
        task = draw_task(split, part, DEPTHS[len(problems) % len(DEPTHS)], rng, config.domains)
        behaviour = signature(task.domain, task.codes)
        problem = None if behaviour in taken or behaviour in problems else _problem(task, config.seed)
        if problem:
            problems[behaviour] = problem
            num_in_vain = 0
            continue
        num_in_vain += 1
        if num_in_vain == _MOST_REPEATS:
            raise ConfigError(
                f"problems.{part} = {wanted}: only {len(problems)} different problems were found; "
                f"ask for fewer, or for more problems.domains than {list(config.domains)}, or change "
                f"problems.heldout_share = {config.heldout_share}"
            )
    return list(problems.values()), frozenset(problems)


def draw_task(split: Split, part: Part, depth: int, rng: random.Random, domains: Collection[str]) -> Task:
    """A task of this part of the split that is worth asking.

    Raises:
        ConfigError: the split leaves none, or next to none.
    """
    for _ in range(_MOST_DRAWS):
        task = Task.draw(rng, depth, domains)
        if split.part(task.pairs) is part and is_worth_asking(task):
            return task
    raise ConfigError(
        f"problems.heldout_share: leaves no {part} problem of {depth} operations; a share of 0.1 to 0.5 serves all"
    )


def is_worth_asking(task: Task) -> bool:
    """Whether the value depends on the input and on every operation, and is never long."""
    texts = probe_values(task.domain, task.codes)
    if max(map(len, texts)) > _LONGEST_OUTPUT or len(set(texts)) < _FEWEST_VALUES:
        return False
    return all(
        differ(task.domain, task.codes, shorter, probes(task.domain), at_least=_FEWEST_DIFFERENCES)
        for shorter in _without_one_step(task)
    )


def _without_one_step(task: Task) -> Iterator[tuple[str, ...]]:
    right = task.codes
    first = len(task.start)
    for place in range(first, first + len(task.steps)):
        yield (*right[:place], "", *right[place + 1 :])


def draw_test_inputs(task: Task, rng: random.Random) -> list[Arguments]:
    """Inputs for tests of `task`, drawn once, so that they may miss a mistake."""
    return draw_inputs(task.domain, task.constants, task.start[0].operation.name if task.start else None, rng)


def problem_on(task: Task, inputs: Sequence[Arguments]) -> Problem:
    """`task` with tests on `inputs`."""
    return _on_inputs(task, inputs, list(outputs(task.domain, task.codes, inputs)))


def _problem(task: Task, seed: int) -> Problem | None:
    """`task` with its tests; None if it has the same value on nearly all inputs that were tried."""
    inputs = _discerning_inputs(task, random.Random(f"{seed} tests of {task.id}"))
    values = list(outputs(task.domain, task.codes, inputs))
    return _on_inputs(task, inputs, values) if len(set(map(str, values))) >= _FEWEST_VALUES else None


def _on_inputs(task: Task, inputs: Sequence[Arguments], values: Sequence[Any]) -> Problem:
    return Problem(
        id=task.id,
        statement=task.statement,
        starter_code=task.starter_code,
        solutions=[task.program(task.codes)],
        tests=_tests(task, inputs, values),
        time_limit_s=_TIME_LIMIT_S,
        source="curriculum",
        difficulty=_DIFFICULTY[len(task.steps)],
        tags=[task.domain.name, task.style, f"depth-{len(task.steps)}"],
    )


def _discerning_inputs(task: Task, rng: random.Random) -> list[Arguments]:
    """The inputs, of a few draws, on which the fewest mistakes go unnoticed."""
    start = task.start[0].operation.name if task.start else None
    best: list[Arguments] = []
    fewest = math.inf
    for _ in range(_MOST_DRAWS_OF_TESTS):
        inputs = draw_inputs(task.domain, task.constants, start, rng)
        unnoticed = _num_unnoticed(task, inputs)
        if unnoticed < fewest:
            best, fewest = inputs, unnoticed
        if unnoticed == 0:
            break
    return best


def _num_unnoticed(task: Task, inputs: Sequence[Arguments]) -> int:
    """How many programs with one mistake pass on `inputs`, though they fail on the probes."""
    domain, right = task.domain, task.codes
    passing = (codes for codes in mutants(task) if not differ(domain, right, codes, inputs))
    return sum(differ(domain, right, codes, probes(domain)) for codes in passing)


def _tests(task: Task, inputs: Sequence[Arguments], values: Sequence[Any]) -> CallTests | StdinTests:
    if task.style == "call":
        cases = [CallCase(list(arguments), value) for arguments, value in zip(inputs, values, strict=True)]
        return CallTests("call", "f", cases)
    lines = [_shown(arguments[0] if len(arguments) == 1 else arguments) for arguments in inputs]
    return StdinTests(
        "stdin", [StdinCase(f"{line}\n", f"{_shown(value)}\n") for line, value in zip(lines, values, strict=True)]
    )


def _shown(value: Any) -> str:
    """What `print` writes for a text or number, and `print(*items)` for items."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
