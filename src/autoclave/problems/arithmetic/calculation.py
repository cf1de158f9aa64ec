r"""A calculation: a number and operations on it, one after the other; how it is asked and how it is worked out.

    Compute ((3+4)*5-6) mod 7.        3+4=7
                                      7*5=35
                                      35-6=29
                                      29 mod 7=1
                                      \boxed{1}

All numbers on the way are from 1 to the highest allowed, and every operation changes the number, so each is one line of
the response, and the number of operations sets its length. There is no 0: whoever got one would keep it through every
`*` and `mod`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

NUMBERS = range(1, 100)
"""Those that occur on the way if nothing else is said."""
_FIRST = range(2, 21)


@dataclass(frozen=True, slots=True)
class Operation:
    """`sign` is one of `+`, `-`, `*`, `mod`."""

    sign: str
    operand: int

    def apply(self, number: int) -> int:
        """What it makes of `number`."""
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
        """Whether it changes `number`, and leaves it among `numbers`."""
        result = self.apply(number)
        return result in numbers and result != number

    @property
    def name(self) -> str:
        return f"{self.sign}{self.operand}"

    @property
    def text(self) -> str:
        """As it follows a number or an expression."""
        return f" mod {self.operand}" if self.sign == "mod" else self.name


OPERATIONS = tuple(
    Operation(sign, operand)
    for sign, operands in (("+", range(1, 10)), ("-", range(1, 10)), ("*", range(2, 10)), ("mod", range(3, 10)))
    for operand in operands
)
SIGNS = ("+", "-", "*", "mod")

Pair = tuple[str, str]
"""Names of two operations, the second right after the first."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """`first`, then `operations` on it, in order."""

    first: int
    operations: tuple[Operation, ...]

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(pairwise(operation.name for operation in self.operations))

    @property
    def answer(self) -> int:
        number = self.first
        for operation in self.operations:
            number = operation.apply(number)
        return number

    @property
    def id(self) -> str:
        return ".".join(["arithmetic", str(self.first), *(operation.name for operation in self.operations)])

    @property
    def statement(self) -> str:
        return f"Compute {self.expression}."

    @property
    def expression(self) -> str:
        """With the parentheses that it needs, and around all that `mod` is taken of or goes on from."""
        text, sign = str(self.first), ""
        for operation in self.operations:
            is_loose = sign in ("+", "-") and operation.sign == "*"
            if sign == "mod" or is_loose or (sign and operation.sign == "mod"):
                text = f"({text})"
            text, sign = f"{text}{operation.text}", operation.sign
        return text


def working(first: int, operations: Iterable[Operation], results: Iterable[int]) -> str:
    """The response that gets `results` from `operations`, a line each, and the last of them as the answer."""
    number, lines = first, list[str]()
    for operation, result in zip(operations, results, strict=True):
        lines.append(f"{number}{operation.text}={result}")
        number = result
    return "\n".join([*lines, f"\\boxed{{{number}}}"])


def right_working(calculation: Calculation) -> str:
    """The response without a mistake."""
    results, number = list[int](), calculation.first
    for operation in calculation.operations:
        number = operation.apply(number)
        results.append(number)
    return working(calculation.first, calculation.operations, results)


def operations_with(signs: Collection[str]) -> tuple[Operation, ...]:
    """All that have one of the signs."""
    return tuple(operation for operation in OPERATIONS if operation.sign in signs)


def draw(
    rng: random.Random,
    num_operations: int,
    is_allowed: Callable[[Pair], bool],
    known: Sequence[Operation] = OPERATIONS,
    numbers: range = NUMBERS,
) -> Calculation | None:
    """A calculation of so many of the `known` operations in which all pairs are allowed; None when it gets stuck."""
    first = number = rng.choice([number for number in _FIRST if number in numbers])
    operations: list[Operation] = []
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


def _one_of(choices: Sequence[Operation], rng: random.Random) -> Operation:
    """Each sign as likely as the others, whatever its number of operands."""
    sign = rng.choice([sign for sign in SIGNS if any(choice.sign == sign for choice in choices)])
    return rng.choice([choice for choice in choices if choice.sign == sign])
