"""Demonstrations for the warm start, by a careless teacher who misunderstands some operations.

The policy learns to write out every step, and a prior with plausible mistakes that reinforcement learning can correct.
A misunderstood operation always has the same mistake. After a mistake the teacher continues from the wrong number. No
demonstration has a pair of operations that is kept for the report.
"""

import random
from dataclasses import dataclass, replace

from autoclave.config import ArithmeticConfig, SftConfig
from autoclave.core import ConfigError
from autoclave.problems.prompts import Demonstration, plain_messages
from autoclave_environments.arithmetic.build import draw_for_training, kept_pairs
from autoclave_environments.arithmetic.calculation import ArithmeticOperation, Calculation, operations_with, working
from autoclave_environments.synthetic.split import lowest

_SLIPS = (-10, -1, 1, 10)
_MOST_DRAWS = 5_000


def arithmetic_demonstrations(config: ArithmeticConfig, sft: SftConfig) -> list[Demonstration]:
    """Return `sft.demonstrations` calculations as the teacher writes them, right and wrong, some perhaps equal.

    Raises:
        ConfigError: the split leaves too few calculations.
    """
    kept = kept_pairs(config)
    names = [operation.name for operation in operations_with(config.signs)]
    misunderstood = frozenset(lowest(names, sft.misunderstood_share, f"{config.seed} arithmetic misunderstood"))
    rng = random.Random(f"{config.seed} arithmetic demonstrations")
    teacher = _Teacher(sft, config.numbers, misunderstood, rng)
    fewest, most = config.operations
    written: list[Demonstration] = []
    num_rejected = 0
    while len(written) < sft.demonstrations:
        calculation = draw_for_training(rng, fewest + len(written) % (most - fewest + 1), config, kept)
        if calculation:
            demonstration = teacher.demonstration(calculation)
            is_alone = config.answer_alone_share > 0 and rng.random() < config.answer_alone_share
            written.append(without_steps(demonstration) if is_alone else demonstration)
            num_rejected = 0
            continue
        num_rejected += 1
        if num_rejected == _MOST_DRAWS:
            raise ConfigError(
                f"problems.heldout_share = {config.heldout_share}: leaves no demonstration. Fix: lower it"
            )
    return written


def without_steps(demonstration: Demonstration) -> Demonstration:
    """Return the demonstration with its answer alone."""
    return replace(demonstration, response=demonstration.response.rpartition("\n")[2])


@dataclass(frozen=True, slots=True)
class _Teacher:
    """Makes mistakes at the rates of `sft`."""

    sft: SftConfig
    numbers: range
    """Numbers that the teacher knows."""
    misunderstood: frozenset[str]
    """Names of operations."""
    rng: random.Random

    def demonstration(self, calculation: Calculation) -> Demonstration:
        number, done, results = calculation.first, list[ArithmeticOperation](), list[int]()
        for operation in calculation.operations:
            result = self._result(operation, number)
            if result is None:
                continue
            done.append(operation)
            results.append(result)
            number = result
        messages = plain_messages(calculation.statement)
        response = working(calculation.first, done, results)
        return Demonstration(calculation.id, messages, response, number == calculation.answer)

    def _result(self, operation: ArithmeticOperation, number: int) -> int | None:
        """Return the result of the teacher; None for an operation that was forgotten."""
        right = operation.apply(number)
        if right not in self.numbers:  # only after a mistake; the operation is skipped
            return None
        if operation.name in self.misunderstood:
            wrong = _mistaken(operation, number)
            return wrong if wrong in self.numbers and self.rng.random() < self.sft.misunderstood_error_rate else right
        if self.rng.random() >= self.sft.error_rate:
            return right
        return self.rng.choice([None, *(right + slip for slip in _SLIPS if right + slip in self.numbers)])


def _mistaken(operation: ArithmeticOperation, number: int) -> int:
    match operation.sign:
        case "+":
            return number + operation.operand - 1
        case "-":
            return number - operation.operand + 1
        case "*":
            return number * (operation.operand - 1)
        case _:
            return number // operation.operand
