"""Problems in words with one-line solutions, for small pretrained models, and their split by function.

A held-out function occurs in no training problem, whatever its constant. Same settings, same problems, in any process.
Reference expressions are our own and are evaluated in this process; output of a model is not.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autoclave.config import FunctionsConfig
from autoclave.core import CallCase, CallTests, Problem
from autoclave_environments.synthetic.split import lowest

FUNCTIONS = Path(__file__).with_name("functions.txt")
"""A line per function: its header, expression and description, and the constants that replace K in both."""
_NUM_TESTS = 8
_NUM_DRAWS = 8
_TIME_LIMIT_S = 2.0
_WORDS = (
    *("apple", "Bird", "carrot", "dog", "Engine", "forest", "garden", "House", "island", "jacket", "King", "lemon"),
    *("mountain", "Night", "orange", "paper", "Queen", "river", "stone", "Table", "under", "violet", "Window", "year"),
    *("zebra", "is", "on", "at", "the", "green"),
)


def build_functions(config: FunctionsConfig) -> tuple[list[Problem], list[Problem]]:
    lines = FUNCTIONS.read_text("utf-8").splitlines()
    kept = set(lowest(lines, config.heldout_share, f"{config.seed} function"))
    train = [problem for line in lines if line not in kept for problem in _problems(line)]
    return train, [problem for line in lines if line in kept for problem in _problems(line)]


def _problems(line: str) -> Iterator[Problem]:
    header, expression, words, *constants = (part.strip() for part in line.split(" | "))
    for constant in constants[0].split() if constants else [""]:
        yield _problem(header, expression.replace("K", constant), words.replace("K", constant), constant)


def _problem(header: str, expression: str, words: str, constant: str) -> Problem:
    name, arguments = header.removesuffix(")").split("(")
    function = eval(f"lambda {arguments}: {expression}")
    identity = f"{name}-{constant}" if constant else name
    kinds = arguments.split(", ")
    return Problem(
        id=f"functions/{identity}",
        statement=f"Write a Python function `{header}` that returns {words}.",
        solutions=[f"def {header}:\n    return {expression}"],
        tests=CallTests("call", name, _cases(function, kinds, random.Random(identity))),
        time_limit_s=_TIME_LIMIT_S,
        source="functions",
        tags=kinds,
    )


def _cases(function: Callable[..., Any], kinds: list[str], rng: random.Random) -> list[CallCase]:
    """Return tests with different values: of a few draws, those with the most."""
    draws = [[[_DRAWN[kind](rng) for kind in kinds] for _ in range(_NUM_TESTS)] for _ in range(_NUM_DRAWS)]
    found = [[CallCase(inputs, function(*inputs)) for inputs in draw] for draw in draws]
    return max(found, key=lambda cases: len({str(case.output) for case in cases}))


def _number(rng: random.Random) -> int:
    return rng.randint(1, 40)


_DRAWN: dict[str, Callable[[random.Random], Any]] = {
    "numbers": lambda rng: [rng.randint(-9, 20) for _ in range(rng.randint(3, 8))],
    "text": lambda rng: " ".join(rng.choices(_WORDS, k=rng.randint(2, 5))),
    "words": lambda rng: rng.choices(_WORDS, k=rng.randint(2, 6)),
    **dict.fromkeys("nab", _number),
}
"""Draws an argument of each name."""
