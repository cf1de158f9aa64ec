"""Tasks: operations of one domain in a row, with parameters and wording; their statements, programs and ids.

Not here: values of a task (`behaviour.py`), and the split of tasks (`split.py`).
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from autoclave_environments.synthetic.operations import Domain, Operation, fill
from autoclave_environments.synthetic.tables import INTEGERS, LISTS, TEXTS

DOMAINS = (LISTS, TEXTS, INTEGERS)
_WEIGHTS = (5, 3, 2)  # about as their numbers of operations
_CALL_SHARE = 0.65

Style = Literal["call", "stdin"]
OperationPair = tuple[str, str]
"""Two operations, the second right after the first, as `domain.name`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An operation with its parameters and one of its phrasings."""

    operation: Operation
    parameters: tuple[str, ...]
    phrasing: int
    is_unsaid: bool = False
    """The text has `?` in place of the parameter."""

    @staticmethod
    def draw(operation: Operation, rng: random.Random) -> "Piece":
        return Piece(operation, operation.draw_parameters(rng), rng.randrange(len(operation.phrasings)))

    @property
    def text(self) -> str:
        return fill(self.operation.phrasings[self.phrasing], ("?",) if self.is_unsaid else self.parameters)

    @property
    def code(self) -> str:
        return fill(self.operation.code, self.parameters)

    @property
    def wrong(self) -> tuple[str, ...]:
        """The code of each plausible mistake, the dominant one first."""
        return tuple(fill(template, self.parameters) for template in self.operation.wrong)

    @property
    def label(self) -> str:
        return "-".join((self.operation.name, *self.parameters)) + "?" * self.is_unsaid

    def guessed(self, rng: random.Random) -> "Piece":
        """Return it with another value of its only parameter."""
        (parameter,), (right,) = self.operation.parameters, self.parameters
        return replace(self, parameters=(rng.choice([value for value in parameter.values() if value != right]),))


@dataclass(frozen=True, slots=True)
class SyntheticTask:
    """A pipeline: perhaps a start, then `steps`, then a final, as a function or as a script."""

    domain: Domain
    style: Style
    start: tuple[Piece, ...]
    steps: tuple[Piece, ...]
    final: Piece

    @staticmethod
    def draw(rng: random.Random, depth: int, domains: Collection[str]) -> "SyntheticTask":
        """Return a random task of one of these domains with `depth` different operations."""
        weights = [weight if domain.name in domains else 0 for domain, weight in zip(DOMAINS, _WEIGHTS, strict=True)]
        domain = rng.choices(DOMAINS, weights)[0]
        style: Style = "call" if rng.random() < _CALL_SHARE else "stdin"
        start = (Piece.draw(rng.choice(domain.starts), rng),) if domain.starts else ()
        operations = rng.sample(domain.operations, depth)
        steps = tuple(Piece.draw(operation, rng) for operation in operations)
        return SyntheticTask(domain, style, start, steps, Piece.draw(rng.choice(domain.finals), rng))

    def with_unsaid(self, rng: random.Random) -> "SyntheticTask | None":
        """Return the task with a shown parameter left unsaid, and the value itself as its result; None without one."""
        places = [place for place, step in enumerate(self.steps) if step.operation.is_shown]
        if not places:
            return None
        steps, place = list(self.steps), rng.choice(places)
        steps[place] = replace(steps[place], is_unsaid=True)
        return replace(self, steps=tuple(steps), final=Piece(self.domain.finals[0], (), 0))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (*self.start, *self.steps, self.final)

    @property
    def pairs(self) -> tuple[OperationPair, ...]:
        """The pairs of adjacent operations. Starts and finals are not operations."""
        return adjacent_pairs(self.domain, self.steps)

    @property
    def codes(self) -> tuple[str, ...]:
        """The right code of each piece."""
        return tuple(piece.code for piece in self.pieces)

    @property
    def constants(self) -> tuple[str, ...]:
        """All parameters, in the order of the text."""
        return tuple(value for piece in self.pieces for value in piece.parameters)

    @property
    def statement(self) -> str:
        opening, verb = self.domain.stdin_opening, "print"
        if self.style == "call":
            opening, verb = self.domain.call_opening, "return"
        clauses = ", then ".join(piece.text for piece in (*self.start, *self.steps))
        return f"{opening}: {clauses}; {verb} {self.final.text}."

    @property
    def starter_code(self) -> str:
        return f"def f({self.domain.arguments}):" if self.style == "call" else ""

    @property
    def id(self) -> str:
        """Domain, style, every piece with its parameters, and the numbers of the phrasings."""
        phrasings = "".join(str(piece.phrasing) for piece in self.pieces)
        return ".".join((self.domain.name, self.style, *(piece.label for piece in self.pieces), phrasings))

    def program(self, codes: Sequence[str]) -> str:
        """Return the program with the pieces `codes`, which may differ from the right ones; "" leaves one out."""
        *body, final = codes
        lines = [line for code in body for line in code.splitlines()]
        if self.style == "call":
            return "\n".join([self.starter_code, *(f"    {line}" for line in lines), f"    return {final}"])
        shown = f"*{final}" if self.final.operation.has_items else final
        return "\n".join([self.domain.reading, *lines, f"print({shown})"])


def qualified_name(domain: Domain, operation: Operation) -> str:
    return f"{domain.name}.{operation.name}"


def adjacent_pairs(domain: Domain, steps: Sequence[Piece]) -> tuple[OperationPair, ...]:
    names = [qualified_name(domain, piece.operation) for piece in steps]
    return tuple(pairwise(names))
