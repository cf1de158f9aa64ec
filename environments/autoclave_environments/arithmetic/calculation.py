r"""Calculations: a number and operations on it, one after the other; their statement and their working.

    Compute ((3+4)*5-6) mod 7.        3+4=7
                                      7*5=35
                                      35-6=29
                                      29 mod 7=1
                                      \boxed{1}

All intermediate numbers are from 1 to the highest allowed, and every operation changes the number, so each is one line
of the response, and the number of operations sets its length. 0 is left out: `*` and `mod` would keep it.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

NUMBERS = range(1, 100)
"""Default range of intermediate numbers."""
_FIRST = range(2, 21)


@dataclass(frozen=True, slots=True)
class ArithmeticOperation:
    """`sign` is one of `+`, `-`, `*`, `mod`."""

    sign: str
    operand: int

    def apply(self, number: int) -> int:
        match self.sign:
            case "+":
                return number + self.operand
            case "-":
                return number - self.operand
            case "*":
                return number * self.operand
            case _:
                return number % self.operand

    def can_follow(self, number: int, numbers: range) -> bool:
        """Return whether it changes `number`, and the result is one of `numbers`."""
        result = self.apply(number)
        return result in numbers and result != number

    @property
    def name(self) -> str:
        return f"{self.sign}{self.operand}"

    @property
    def text(self) -> str:
        """Text after a number or an expression."""
        return f" mod {self.operand}" if self.sign == "mod" else self.name


OPERATIONS = tuple(
    ArithmeticOperation(sign, operand)
    for sign, operands in (("+", range(1, 10)), ("-", range(1, 10)), ("*", range(2, 10)), ("mod", range(3, 10)))
    for operand in operands
)
SIGNS = ("+", "-", "*", "mod")

OperationPair = tuple[str, str]
"""Names of two operations, the second right after the first."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """`first`, then `operations` on it, in order."""

    first: int
    operations: tuple[ArithmeticOperation, ...]

    @property
    def pairs(self) -> frozenset[OperationPair]:
        return frozenset(pairwise(operation.name for operation in self.operations))

    @property
    def results(self) -> list[int]:
        return list(accumulate(self.operations, lambda number, each: each.apply(number), initial=self.first))[1:]

    @property
    def answer(self) -> int:
        return self.results[-1]

    @property
    def id(self) -> str:
        return ".".join(["arithmetic", str(self.first), *(operation.name for operation in self.operations)])

    @property
    def statement(self) -> str:
        return f"Compute {self.expression}."

    @property
    def expression(self) -> str:
        """The expression with the parentheses that it needs, and around the operands of `mod`."""
        text, sign = str(self.first), ""
        for operation in self.operations:
            is_loose = sign in ("+", "-") and operation.sign == "*"
            if sign == "mod" or is_loose or (sign and operation.sign == "mod"):
                text = f"({text})"
            text, sign = f"{text}{operation.text}", operation.sign
        return text


def working(first: int, operations: Iterable[ArithmeticOperation], results: Iterable[int]) -> str:
    """Return the response with a line for each of `operations` and `results`, and the last result as the answer."""
    numbers = [first, *results]
    lines = [f"{a}{operation.text}={b}" for operation, (a, b) in zip(operations, pairwise(numbers), strict=True)]
    return "\n".join([*lines, f"\\boxed{{{numbers[-1]}}}"])


def right_working(calculation: Calculation) -> str:
    return working(calculation.first, calculation.operations, calculation.results)


def operations_with(signs: Collection[str]) -> tuple[ArithmeticOperation, ...]:
    return tuple(operation for operation in OPERATIONS if operation.sign in signs)


def draw(
    rng: random.Random,
    num_operations: int,
    is_allowed: Callable[[OperationPair], bool],
    known: Sequence[ArithmeticOperation] = OPERATIONS,
    numbers: range = NUMBERS,
) -> Calculation | None:
    """Return a random calculation of `known` operations with allowed pairs only; None at a dead end."""
    first = number = rng.choice([number for number in _FIRST if number in numbers])
    operations: list[ArithmeticOperation] = []
    for _ in range(num_operations):
        before = operations[-1].name if operations else None
        choices = [
            operation
            for operation in known
            if operation.can_follow(number, numbers) and (before is None or is_allowed((before, operation.name)))
        ]
        if not choices:
            return None
        operations.append(_one_of(choices, rng))
        number = operations[-1].apply(number)
    return Calculation(first, tuple(operations))


def _one_of(choices: Sequence[ArithmeticOperation], rng: random.Random) -> ArithmeticOperation:
    """Choose an operation, with all signs equally likely."""
    sign = rng.choice([sign for sign in SIGNS if any(choice.sign == sign for choice in choices)])
    return rng.choice([choice for choice in choices if choice.sign == sign])
