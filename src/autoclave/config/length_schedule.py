"""Settings of context lengthening: how long responses may be in each stage of a run, and when the next one begins."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from autoclave.config.base import Config, Positive


class LengthStageConfig(Config):
    """A stage of a run."""

    max_new_tokens: Positive
    """Most tokens of a response."""


class AdvanceAtStepsConfig(Config):
    """The next stage begins after a given number of steps."""

    name: Literal["steps"] = "steps"
    """The steps are given."""

    steps: tuple[Positive, ...]
    """For each stage but the last, the steps of the run after which it ends."""


class AdvanceAtPlateauConfig(Config):
    """The next stage begins when the variance of rewards has reached a plateau and their mean no longer rises."""

    name: Literal["plateau"] = "plateau"
    """Rewards decide."""

    window: Annotated[int, Field(ge=2)] = 10
    """Steps that are averaged; the last so many are compared with as many before them, all of one stage."""

    patience: Positive = 3
    """Steps in a row at which the comparison must find a plateau."""

    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Relative change between the two windows, of the variance in either direction and of the mean upwards, that counts
    as none."""


AdvanceConfig = Annotated[AdvanceAtPlateauConfig | AdvanceAtStepsConfig, Field(discriminator="name")]


class LengthScheduleConfig(Config):
    """Context lengthening: a run begins with short responses, and lets them become longer stage by stage."""

    stages: Annotated[tuple[LengthStageConfig, ...], Field(min_length=2)]
    """The stages in their order; each allows more tokens than the one before."""

    advance: AdvanceConfig = AdvanceAtPlateauConfig()
    """Rule by which the next stage begins."""

    @property
    def limits(self) -> tuple[int, ...]:
        """Most tokens of a response, stage by stage."""
        return tuple(stage.max_new_tokens for stage in self.stages)

    @model_validator(mode="after")
    def _stages_rise(self) -> Self:
        for number, (before, after) in enumerate(pairwise(self.limits), start=1):
            if after <= before:
                raise ValueError(
                    f"stages.{number}.max_new_tokens = {after}: must be above the {before} of the stage before it"
                )
        return self

    @model_validator(mode="after")
    def _steps_end_stages(self) -> Self:
        if self.advance.name != "steps":
            return self
        steps, wanted = self.advance.steps, len(self.stages) - 1
        if len(steps) != wanted:
            raise ValueError(
                f"advance.steps = {list(steps)}: {len(self.stages)} stages need {wanted}, the end of each but the last"
            )
        if any(after <= before for before, after in pairwise(steps)):
            raise ValueError(f"advance.steps = {list(steps)}: each must be above the one before")
        return self

    @property
    def fewest_steps(self) -> int:
        """Steps that are done at the earliest when the last stage begins."""
        if self.advance.name == "steps":
            return self.advance.steps[-1]
        return (2 * self.advance.window + self.advance.patience - 1) * (len(self.stages) - 1)
