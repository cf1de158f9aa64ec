"""Operations, and the domains that collect them: the parts of synthetic problems.

Templates hold `{p}` and `{q}` for the parameters of an operation, `{p+1}` and `{p-1}` for the numbers beside them.
Not here: the tables (`tables.py`), and tasks (`compose.py`).
"""

import random
from dataclasses import dataclass
from enum import StrEnum

LETTERS = "aeoinrst"


class Parameter(StrEnum):
    """Kind of value that fills a place of a template."""

    NUMBER = "number"
    """2 to 9: one digit, and neither a no-op nor a special case."""
    COUNT = "count"
    """2 to 5: a number of items; fewer than most inputs have."""
    LETTER = "letter"
    """One of `LETTERS`, which are frequent in the inputs."""

    def values(self) -> tuple[str, ...]:
        """Return all values, as written in statements and programs."""
        if self is Parameter.LETTER:
            return tuple(LETTERS)
        return tuple(str(n) for n in range(2, 10 if self is Parameter.NUMBER else 6))


@dataclass(frozen=True, slots=True, eq=False)  # one object per entry of a table: compared and hashed by identity
class Operation:
    """One step of a pipeline: its phrasings, its code, and wrong versions of the code.

    The code of a start or an operation assigns the domain's variable; that of a final is an expression. `wrong[0]` is
    the code of a teacher who misunderstands the operation. No code raises or loops long on any value of the domain.
    `has_items` marks a final whose value is a list, printed item by item; `is_shown` an operation that puts its
    parameter into the value, so that a test tells it.
    """

    name: str
    phrasings: tuple[str, ...]
    code: str
    wrong: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    has_items: bool = False
    is_shown: bool = False

    def draw_parameters(self, rng: random.Random) -> tuple[str, ...]:
        """Return random values for the parameters, all different."""
        drawn: list[str] = []
        for parameter in self.parameters:
            drawn.append(rng.choice([value for value in parameter.values() if value not in drawn]))
        return tuple(drawn)


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A type of value with its operations.

    `starts` compute the value from several arguments; without them the only argument is the value.
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
    for place, value in zip("pq", parameters, strict=False):
        template = template.replace(f"{{{place}}}", value)
        if value.isdigit():
            template = template.replace(f"{{{place}+1}}", str(int(value) + 1))
            template = template.replace(f"{{{place}-1}}", str(int(value) - 1))
    return template
