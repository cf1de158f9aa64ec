"""The base of every settings object, and the number types they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    """Frozen, and closed: a key that is not declared is an error. The text under a field is its documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def dependent_defaults(cls, tree: Mapping[str, Any], stated: Collection[str]) -> Mapping[str, Any]:
        """Defaults that follow from other settings, by path, of a `tree` in which the paths `stated` were given."""
        return {}


Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
