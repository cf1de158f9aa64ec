"""What can be proposed for a database: statements in its own language."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from autoclave.config import Config
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
    """Statements that would undo it. They are ignored with a warning: the rows before and after are kept, and restored
    exactly."""
    mode: Mode | None = Field(default=None, strict=False)
    """How it can be taken back; nothing: as the settings of the database say."""

    @model_validator(mode="after")
    def _fits(self) -> Sql:
        if self.parameters and len(self.parameters) != len(self.statements):
            raise ValueError(f"parameters: {len(self.parameters)} lists for {len(self.statements)} statements")
        return self

    def values_of(self, number: int) -> tuple[Parameter, ...]:
        """The values for a statement, by its place."""
        return self.parameters[number] if self.parameters else ()
