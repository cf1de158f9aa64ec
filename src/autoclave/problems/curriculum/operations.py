"""What the tables of the curriculum are made of: operations, and the domains that collect them.

Templates hold `{p}` and `{q}` for the parameters of an operation, `{p+1}` and `{p-1}` for their neighbours.
Not here: the tables (`lists.py`, `texts.py`, `integers.py`), and how operations become a task (`compose.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

LETTERS = "aeoinrst"


class Parameter(StrEnum):
    """What stands in a place of a template."""

    NUMBER = "number"
    """2 to 9: one digit, and neither a no-op nor a special case."""
    COUNT = "count"
    """2 to 5: how many items; fewer than most inputs have."""
    LETTER = "letter"
    """One of `LETTERS`, which are frequent in the inputs."""

    def values(self) -> tuple[str, ...]:
        """All values, as they are written in a statement and in a program."""
        if self is Parameter.LETTER:
            return tuple(LETTERS)
        return tuple(str(n) for n in range(2, 10 if self is Parameter.NUMBER else 6))


@dataclass(frozen=True, slots=True, eq=False)  # one object per entry of a table: compared and hashed by identity
class Operation:
    """One step of a pipeline: how it is said, how it is written, and how it is written wrongly.

    The code of a start or an operation is lines that assign the domain's variable; that of a final is an expression.
    `wrong[0]` is the misconception of a teacher who misunderstands the operation. All code is total: it neither raises
    nor loops long on any value of the domain. `has_items` marks a final whose value is a list, printed item by item.
    """

    name: str
    phrasings: tuple[str, ...]
    code: str
    wrong: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    has_items: bool = False

    def draw_parameters(self, rng: random.Random) -> tuple[str, ...]:
        """Values for the parameters, all different."""
        drawn: list[str] = []
        for parameter in self.parameters:
            drawn.append(rng.choice([value for value in parameter.values() if value not in drawn]))
        return tuple(drawn)


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A type of value with everything that can be done to it.

    `starts` make the value from several arguments; without them the only argument is the value.
    """

    name: str
    variable: str
    arguments: str
    call_opening: str
    stdin_opening: str
    reading: str
    starts: tuple[Operation, ...]
    operations: tuple[Operation, ...]
    finals: tuple[Operation, ...]


def fill(template: str, parameters: tuple[str, ...]) -> str:
    """`template` with the parameters in their places."""
    for place, value in zip("pq", parameters, strict=False):
        template = template.replace(f"{{{place}}}", value)
        if value.isdigit():
            template = template.replace(f"{{{place}+1}}", str(int(value) + 1))
            template = template.replace(f"{{{place}-1}}", str(int(value) - 1))
    return template
