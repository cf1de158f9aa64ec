"""Build arithmetic problems from a seed, and the pairs of operations that are kept for the report.

The unit of the split is the ordered pair (operation, next operation), operands included: no training problem and no
demonstration has a kept pair, every held-out problem has at least one. So each operation occurs in training, and
held-out problems combine operations in new ways. Equal settings give equal problems, in any process.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from autoclave.config import ArithmeticConfig
from autoclave.core import AnswerTests, ConfigError, Problem
from autoclave_environments.arithmetic.calculation import (
    Calculation,
    OperationPair,
    draw,
    operations_with,
    right_working,
)
from autoclave_environments.synthetic.split import lowest

_TIME_LIMIT_S = 2.0
_MOST_DRAWS = 5_000


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Training problems, held-out problems, and the pairs that only the latter have."""

    train: list[Problem]
    heldout: list[Problem]
    heldout_pairs: frozenset[OperationPair]


def build_arithmetic(config: ArithmeticConfig) -> Arithmetic:
    """Return the problems of `config`; the numbers of operations cycle.

    Raises:
        ConfigError: too few different problems were found.
    """
    kept = kept_pairs(config)
    train = _problems(config, "train", config.train, kept, draw_for_training)
    heldout = _problems(config, "heldout", config.heldout, kept, _draw_for_report)
    return Arithmetic(train, heldout, kept)


def kept_pairs(config: ArithmeticConfig) -> frozenset[OperationPair]:
    """Return the pairs that no training problem has: the share with the lowest hashes."""
    names = [operation.name for operation in operations_with(config.signs)]
    return frozenset(lowest(product(names, names), config.heldout_share, f"{config.seed} arithmetic pair"))


def draw_for_training(
    rng: random.Random, num_operations: int, config: ArithmeticConfig, kept: frozenset[OperationPair]
) -> Calculation | None:
    """Return a random calculation without a kept pair; None at a dead end."""
    known = operations_with(config.signs)
    return draw(rng, num_operations, lambda pair: pair not in kept, known, config.numbers)


def _draw_for_report(
    rng: random.Random, num_operations: int, config: ArithmeticConfig, kept: frozenset[OperationPair]
) -> Calculation | None:
    drawn = draw(rng, num_operations, lambda _: True, operations_with(config.signs), config.numbers)
    return drawn if drawn and drawn.pairs & kept else None


def _problems(
    config: ArithmeticConfig,
    part: str,
    count: int,
    kept: frozenset[OperationPair],
    drawn: Callable[[random.Random, int, ArithmeticConfig, frozenset[OperationPair]], Calculation | None],
) -> list[Problem]:
    rng = random.Random(f"{config.seed} arithmetic {part}")
    fewest, most = config.operations
    problems: dict[str, Problem] = {}
    num_rejected = 0
    while len(problems) < count:
        calculation = drawn(rng, fewest + len(problems) % (most - fewest + 1), config, kept)
        if calculation and calculation.id not in problems:
            problems[calculation.id] = _problem(calculation)
            num_rejected = 0
            continue
        num_rejected += 1
        if num_rejected == _MOST_DRAWS:
            raise ConfigError(
                f"problems.{part} = {count}: only {len(problems)} different problems were found. Fix: lower it, allow "
                f"more operations, or change problems.heldout_share = {config.heldout_share}"
            )
    return list(problems.values())


def _problem(calculation: Calculation) -> Problem:
    return Problem(
        id=calculation.id,
        statement=calculation.statement,
        solutions=[right_working(calculation)],
        tests=AnswerTests("answer", str(calculation.answer), "math"),
        time_limit_s=_TIME_LIMIT_S,
        source="arithmetic",
        tags=[f"operations-{len(calculation.operations)}"],
    )
