"""Build synthetic problems from a seed.

Every problem is checked: its value varies with the input and is short, leaving out any operation changes the value on
several probes, and the tests fail every plausible mistake that shows on the probes, if a few draws find such tests.
No two problems have equal behaviour, in any wording or style, so none is on both sides of the split.
Equal settings give equal problems, byte for byte, in any process.
Not here: demonstrations for the warm start (`teacher.py`).
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autoclave.config.problems import SyntheticConfig
from autoclave.core import CallCase, CallTests, ConfigError, Problem, StdinCase, StdinTests
from autoclave_environments.synthetic.behaviour import differ, mutants, outputs, probe_values, signature
from autoclave_environments.synthetic.compose import OperationPair, SyntheticTask
from autoclave_environments.synthetic.inputs import Arguments, draw_inputs, probes
from autoclave_environments.synthetic.split import Part, Split

DEPTHS = (2, 2, 3)
"""Numbers of operations of the problems, cycled, so that every set has the same mix."""

_DIFFICULTY = {1: "easy", 2: "medium", 3: "hard"}
_TIME_LIMIT_S = 1.0
_LONGEST_OUTPUT = 400
_MOST_DRAWS_OF_TESTS = 6
_MOST_DRAWS = 20_000
_MAX_REJECTED = 500
_FEWEST_VALUES = 3
_FEWEST_DIFFERENCES = 4  # probes on which leaving out an operation shows; with fewer, hardly any test would show it


@dataclass(frozen=True, slots=True)
class SyntheticProblems:
    """Problems in three sets, and the pairs of adjacent operations that occur in one set only.

    `kept_behaviours` are the signatures of the validation and held-out problems.
    """

    train: list[Problem]
    validation: list[Problem]
    heldout: list[Problem]
    validation_pairs: frozenset[OperationPair]
    heldout_pairs: frozenset[OperationPair]
    kept_behaviours: frozenset[str]


def build_synthetic(config: SyntheticConfig) -> SyntheticProblems:
    """Return the problems of `config`.

    Raises:
        ConfigError: this share of held-out pairs leaves too few different problems.
    """
    built = _built(config)  # pyright: ignore[reportArgumentType]  pydantic gives frozen models a hash
    lists = (list(built.train), list(built.validation), list(built.heldout))
    return SyntheticProblems(*lists, built.validation_pairs, built.heldout_pairs, built.kept_behaviours)


@lru_cache(maxsize=2)  # the demonstrations use it again
def _built(config: SyntheticConfig) -> SyntheticProblems:
    split = Split.of(config.seed, config.heldout_share)
    train, known = _draw(config, Part.TRAIN, config.train, split, frozenset())
    heldout, reported = _draw(config, Part.HELDOUT, config.heldout, split, known)
    validation, tuned_on = _draw(config, Part.VALIDATION, config.validation, split, known | reported)
    return SyntheticProblems(train, validation, heldout, split.validation, split.heldout, reported | tuned_on)


def _draw(
    config: SyntheticConfig, part: Part, count: int, split: Split, taken: frozenset[str]
) -> tuple[list[Problem], frozenset[str]]:
    """Return problems of one part and the signatures of their behaviours, all different and not in `taken`."""
    rng = random.Random(f"{config.seed} {part}")
    problems: dict[str, Problem] = {}
    num_rejected = 0
    while len(problems) < count:
        task = draw_task(split, part, DEPTHS[len(problems) % len(DEPTHS)], rng, config)
        behaviour = signature(task.domain, task.codes)
        problem = None if behaviour in taken or behaviour in problems else _problem(task, config.seed)
        if problem:
            problems[behaviour] = problem
            num_rejected = 0
            continue
        num_rejected += 1
        if num_rejected == _MAX_REJECTED:
            raise ConfigError(
                f"problems.{part} = {count}: only {len(problems)} different problems were found. "
                f"Fix: lower it, add to problems.domains = {list(config.domains)}, or change "
                f"problems.heldout_share = {config.heldout_share}"
            )
    return list(problems.values()), frozenset(problems)


def draw_task(split: Split, part: Part, depth: int, rng: random.Random, config: SyntheticConfig) -> SyntheticTask:
    """Return a usable task of this part of the split. Raises ConfigError: the split leaves too few tasks."""
    leaves_unsaid = config.unsaid > 0 and rng.random() < config.unsaid
    for _ in range(_MOST_DRAWS):
        task = SyntheticTask.draw(rng, depth, config.domains)
        task = task.with_unsaid(rng) if leaves_unsaid else task
        if task and split.part(task.pairs) is part and is_usable(task):
            return task
    raise ConfigError(
        f"problems.heldout_share: leaves no {part} problem of {depth} operations. Fix: set a share of 0.1 to 0.5"
    )


def is_usable(task: SyntheticTask) -> bool:
    """Return whether the value depends on the input and on every operation, and is never long."""
    texts = probe_values(task.domain, task.codes)
    if max(map(len, texts)) > _LONGEST_OUTPUT or len(set(texts)) < _FEWEST_VALUES:
        return False
    return all(
        differ(task.domain, task.codes, shorter, probes(task.domain), at_least=_FEWEST_DIFFERENCES)
        for shorter in _without_one_step(task)
    )


def _without_one_step(task: SyntheticTask) -> Iterator[tuple[str, ...]]:
    right = task.codes
    first = len(task.start)
    for place in range(first, first + len(task.steps)):
        yield (*right[:place], "", *right[place + 1 :])


def draw_test_inputs(task: SyntheticTask, rng: random.Random) -> list[Arguments]:
    """Return random inputs for tests of `task`, which may miss a mistake."""
    return draw_inputs(task.domain, task.constants, task.start[0].operation.name if task.start else None, rng)


def problem_on(task: SyntheticTask, inputs: Sequence[Arguments]) -> Problem:
    return Problem(
        id=task.id,
        statement=task.statement,
        starter_code=task.starter_code,
        solutions=[task.program(task.codes)],
        tests=_tests(task, inputs),
        time_limit_s=_TIME_LIMIT_S,
        source="curriculum",
        difficulty=_DIFFICULTY[len(task.steps)],
        tags=[task.domain.name, task.style, f"depth-{len(task.steps)}"],
    )


def _problem(task: SyntheticTask, seed: int) -> Problem | None:
    """Return the problem of `task`; None if it has nearly the same value on all test inputs."""
    inputs = _discerning_inputs(task, random.Random(f"{seed} tests of {task.id}"))
    values = set(map(str, outputs(task.domain, task.codes, inputs)))
    return problem_on(task, inputs) if len(values) >= _FEWEST_VALUES else None


def _discerning_inputs(task: SyntheticTask, rng: random.Random) -> list[Arguments]:
    """Return the inputs, of a few draws, that miss the fewest mistakes."""
    best: list[Arguments] = []
    fewest = math.inf
    for _ in range(_MOST_DRAWS_OF_TESTS):
        inputs = draw_test_inputs(task, rng)
        missed = _num_missed(task, inputs)
        if missed < fewest:
            best, fewest = inputs, missed
        if missed == 0:
            break
    return best


def _num_missed(task: SyntheticTask, inputs: Sequence[Arguments]) -> int:
    """Return the number of programs with one mistake that pass on `inputs` but fail on the probes."""
    domain, right = task.domain, task.codes
    passing = (codes for codes in mutants(task) if not differ(domain, right, codes, inputs))
    return sum(differ(domain, right, codes, probes(domain)) for codes in passing)


def _tests(task: SyntheticTask, inputs: Sequence[Arguments]) -> CallTests | StdinTests:
    values = list(outputs(task.domain, task.codes, inputs))
    if task.style == "call":
        cases = [CallCase(list(arguments), value) for arguments, value in zip(inputs, values, strict=True)]
        return CallTests("call", "f", cases)
    lines = [_shown(arguments[0] if len(arguments) == 1 else arguments) for arguments in inputs]
    return StdinTests(
        "stdin", [StdinCase(f"{line}\n", f"{_shown(value)}\n") for line, value in zip(lines, values, strict=True)]
    )


def _shown(value: Any) -> str:
    """Return the output of `print` for a string or number, and of `print(*items)` for items."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
