"""Settings: when a run samples, learns and publishes."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from autoclave.config.base import Config, NonNegative, Positive


class ScheduleSettings(Config):
    """Properties of schedules that other parts of a run depend on."""

    learns_in_parts: ClassVar[bool] = False
    """A batch comes in several updates, each one optimizer step."""

    @property
    def mixes_batches(self) -> bool:
        """Requests of several batches are sampled together, as they come, so that what is computed depends on time."""
        return False

    @property
    def drains(self) -> bool:
        """New weights wait for responses in flight."""
        return False

    @property
    def staleness(self) -> int:
        """Versions that the weights which sample a batch may be older than those that learn from it."""
        return 0

    @property
    def is_time_shared(self) -> bool:
        """Nothing is sampled while anything is learnt."""
        return self.staleness == 0 and not self.learns_in_parts


class SynchronousConfig(ScheduleSettings):
    """Sample, judge, learn, publish, one after the other."""

    name: Literal["synchronous"] = "synchronous"


class MinibatchPipelineConfig(ScheduleSettings):
    """Learn from each minibatch when it is complete, while the rest of the batch is sampled; on policy."""

    learns_in_parts: ClassVar[bool] = True
    name: Literal["minibatch_pipeline"] = "minibatch_pipeline"
    order: Literal["completion", "prompt"] = "completion"
    """Groups of a minibatch: those that complete first, or those that `synchronous` puts together."""


class OneOffPipelineConfig(ScheduleSettings):
    """Learn from a batch while the next one is sampled, with weights one iteration old."""

    name: Literal["one_off_pipeline"] = "one_off_pipeline"

    @property
    def staleness(self) -> int:
        return 1


class AsynchronousConfig(ScheduleSettings):
    """Sample without a pause, ahead of the weights that learn."""

    name: Literal["asynchronous"] = "asynchronous"
    max_staleness: NonNegative = 1
    """Iterations that the weights of a group's first token may be older than those that learn from it. 0 is
    `synchronous`."""
    partial: bool = True
    """Responses in flight continue with new weights; false: new weights wait until they end."""
    order: Literal["prompt", "completion"] = "prompt"
    """Groups of a batch: those of `synchronous`, or those that complete first."""

    @property
    def mixes_batches(self) -> bool:
        return self.max_staleness > 0

    @property
    def drains(self) -> bool:
        return not self.partial

    @property
    def staleness(self) -> int:
        return self.max_staleness


ScheduleConfig = Annotated[
    SynchronousConfig | MinibatchPipelineConfig | OneOffPipelineConfig | AsynchronousConfig, Field(discriminator="name")
]


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

    def broken_rules(self) -> Iterator[str]:
        for number, (before, after) in enumerate(pairwise(self.limits), start=1):
            if after <= before:
                yield f"stages.{number}.max_new_tokens = {after}: must be above the {before} of the stage before it"
        if self.advance.name != "steps":
            return
        steps, wanted = self.advance.steps, len(self.stages) - 1
        if len(steps) != wanted:
            yield (
                f"advance.steps = {list(steps)}: {len(self.stages)} stages need {wanted}, the end of each but the last"
            )
        if any(after <= before for before, after in pairwise(steps)):
            yield f"advance.steps = {list(steps)}: each must be above the one before"

    @property
    def fewest_steps(self) -> int:
        """Steps that are done at the earliest when the last stage begins."""
        if self.advance.name == "steps":
            return self.advance.steps[-1]
        return (2 * self.advance.window + self.advance.patience - 1) * (len(self.stages) - 1)
