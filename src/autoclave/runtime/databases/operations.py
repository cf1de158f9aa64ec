"""What can be proposed for a database: statements in its own language."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.runtime.databases.settings import Mode

Parameter = str | int | float | bool | None
_Values = Annotated[tuple[Parameter, ...], Field(strict=False)]


class Sql(Config):
    """Statements that are done all or none, in one transaction."""

    do: Literal["sql"] = "sql"
    database: str
    """The name that the settings give it."""
    statements: tuple[str, ...] = Field(strict=False, min_length=1, max_length=100)
    """One in each text."""
    parameters: tuple[_Values, ...] = Field(default=(), strict=False)
    """Values for each statement, in the engine's own way of naming them: `?` of SQLite, `$1` of PostgreSQL."""
    undo: tuple[str, ...] = Field(default=(), strict=False, max_length=100)
    """Statements that undo it, one in each string. The pre-images are kept all the same; an undo uses these statements
    only where they were proved to restore exactly the pre-images, and they are ignored with a warning otherwise."""
    mode: Mode | None = Field(default=None, strict=False)
    """How it can be taken back; nothing: as the settings of the database say."""

    @model_validator(mode="after")
    def _fits(self) -> Sql:
        if self.parameters and len(self.parameters) != len(self.statements):
            raise ValueError(f"parameters: {len(self.parameters)} lists for {len(self.statements)} statements")
        return self

    def then_undone(self) -> Sql:
        """Return its statements followed by those of its undo, as one operation."""
        values = (*self.parameters, *(() for _ in self.undo)) if self.parameters else ()
        return self.model_copy(update={"statements": self.statements + self.undo, "parameters": values, "undo": ()})

    def values_of(self, number: int) -> tuple[Parameter, ...]:
        """The values for a statement, by its place."""
        return self.parameters[number] if self.parameters else ()


@contextlib.contextmanager
def in_statement(number: int) -> Generator[None]:
    """Say in an error which statement it is about, the first being 1."""
    try:
        yield
    except InputError as error:
        raise InputError(f"statement {number}: {error}") from None
