"""Operations on a database: statements or commands in its own language."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from autoclave.runtime.databases.settings import Mode
from autoclave.runtime.interface import BaseOperation
from autoclave.runtime.quiet import quieten

Parameter = str | int | float | bool | None
_MOST_CHARACTERS = 1_000_000
"""Of a statement that is read: longer ones would take more than some seconds."""
_Words = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=10_000)]
_Values = Annotated[tuple[Parameter, ...], Field(strict=False)]


class Sql(BaseOperation):
    """Statements that are done all or none, in one transaction."""

    do: Literal["sql"] = "sql"
    database: str
    """The name that the settings give it."""
    statements: tuple[str, ...] = Field(strict=False, min_length=1, max_length=100)
    """One in each text."""
    parameters: tuple[_Values, ...] = Field(default=(), strict=False)
    """Values for each statement, in the engine's own way of naming them: `?` of SQLite, `$1` of PostgreSQL."""
    undo: tuple[str, ...] = Field(default=(), strict=False, max_length=100)
    """Statements that would undo it. They are ignored with a warning: the rows before and after are kept, and restored
    exactly."""
    mode: Mode | None = Field(default=None, strict=False)
    """The way in which it can be undone; empty: as the settings of the database say."""

    @model_validator(mode="after")
    def _fits(self) -> "Sql":
        if self.parameters and len(self.parameters) != len(self.statements):
            raise ValueError(f"parameters: {len(self.parameters)} lists for {len(self.statements)} statements")
        return self

    def values_of(self, number: int) -> tuple[Parameter, ...]:
        return self.parameters[number] if self.parameters else ()


class Commands(BaseOperation):
    """Commands that are done all or none."""

    do: Literal["commands"] = "commands"
    database: str
    """The name that the settings give it."""
    commands: tuple[_Words, ...] = Field(strict=False, min_length=1, max_length=100)
    """The words of each: `["SET", "greeting", "hello"]`."""


Operation: TypeAlias = Sql | Commands


@lru_cache(maxsize=64)  # an action is planned again when it is run, and run then
def named_rows(
    statement: str, values: tuple[Parameter, ...], dialect: str, key: tuple[str, ...]
) -> Sequence[str] | None:
    """The values of a key of one column in a statement that looks at no other rows; None if it may look at others.

    So are `INSERT ... VALUES` (no rows) and `UPDATE` or `DELETE` of one table `WHERE key = 7` or `IN (7, 8)`, maybe
    with further conditions by AND. A hint for footprints alone: where it cannot tell, a statement depends on the tables
    that it reads.
    """
    import sqlglot
    from sqlglot import expressions as exp
    from sqlglot.errors import SqlglotError

    quieten("sqlglot")
    if len(statement) > _MOST_CHARACTERS:
        return None
    try:
        (tree,) = sqlglot.parse(statement, dialect=dialect)
    except (SqlglotError, ValueError, RecursionError):
        return None
    if tree is None or tree.find(exp.Select, exp.Subquery, exp.With, exp.Join, exp.From):
        return None
    if any(not each.expressions for each in tree.find_all(exp.In)):  # `x IN table`
        return None
    if isinstance(tree, exp.Insert):
        return [] if isinstance(tree.expression, exp.Values) else None
    if isinstance(tree, exp.Update | exp.Delete) and (where := tree.args.get("where")) and len(key) == 1:
        for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
            if (found := _values(condition, values, key[0])) is not None:
                return found
    return None


def _values(condition: Any, given: Sequence[Parameter], column: str) -> list[str] | None:
    """The values that a condition permits for a column; None if it is no such condition."""
    from sqlglot import expressions as exp

    if isinstance(condition, exp.EQ):
        sides = [condition.left, condition.right]
    elif isinstance(condition, exp.In) and condition.expressions:
        sides = [condition.this, *condition.expressions]
    else:
        return None
    if not isinstance(sides[0], exp.Column):
        sides.reverse()
    if not isinstance(sides[0], exp.Column) or sides[0].name.lower() != column.lower():
        return None
    found = [_text(side, given) for side in sides[1:]]
    return [text for text in found if text is not None] if None not in found else None


def _text(literal: Any, given: Sequence[Parameter]) -> str | None:
    from sqlglot import expressions as exp

    if isinstance(literal, exp.Literal):
        return literal.this
    if isinstance(literal, exp.Neg) and isinstance(literal.this, exp.Literal):
        return f"-{literal.this.this}"
    if isinstance(literal, exp.Parameter) and f"{literal.this}".isdigit() and int(f"{literal.this}") <= len(given):
        return f"{given[int(f'{literal.this}') - 1]}"
    return None
