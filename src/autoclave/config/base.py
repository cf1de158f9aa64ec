"""The base of every settings object, and the number types they share."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Config(BaseModel):
    """Frozen, and closed: a key that is not declared is an error. The text under a field is its documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def dependent_defaults(cls, tree: Mapping[str, Any], stated: Collection[str]) -> Mapping[str, Any]:
        """Defaults that follow from other settings, by path, of a `tree` in which the paths `stated` were given."""
        return {}

    def broken_rules(self) -> Iterator[str]:
        """The rules across settings that these values break; the first is the error."""
        return iter(())

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self.broken_rules():
            raise ValueError(rule)
        return self


Tree = dict[str, Any]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
