"""Settings of execution-semantics alignment: alignment samples from what programs did, mixed into reinforcement
learning.

Source: Jiang et al., CodeRL+: Improving Code Generation via Reinforcement with Execution Semantics Alignment, section
3.2 and appendix D. Defaults are theirs where the paper says something.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, Positive, PositiveFloat


class AlignmentLimitsConfig(Config):
    """Limits on the size of an alignment sample."""

    variables: Positive = 8
    """Most variables of an alignment sample; informative ones come first."""
    program_characters: Positive = 8000
    """Longest program."""
    input_characters: Positive = 2000
    """Longest input."""
    value_characters: Positive = 200
    """Longest value, as a Python literal; variables with longer ones are omitted."""


class AlignmentGrowthConfig(Config):
    """Limits that rise linearly to those of `limits`."""

    steps: Positive
    """Step from which the limits are those of `limits`."""
    variables: Positive = 1
    """Most variables at the first step."""
    program_characters: Positive = 200
    """Longest program at the first step."""


class AlignmentConfig(Config):
    """Execution-semantics alignment (CodeRL+): part of the prompts ask for final values of variables."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Share of the prompts of a step that are alignment samples, once there are enough; the rest asks for programs.
    What a step leaves over, less than one prompt, is carried to the next."""
    weight: PositiveFloat = 1.0
    """Factor on the alignment samples' term of the objective. Each term is a mean over its own prompts."""
    programs: Literal["failed", "random", "reference"] = "failed"
    """Source of alignment samples: responses of the run with a wrong answer; any of its responses that run to
    the end; or, before training, the solutions of the training problems (off-policy)."""
    asks: Literal["variables", "output"] = "variables"
    """Values to infer: final values of variables, or the result alone."""
    template: Literal["plain", "code"] = "code"
    """`plain`: program, input and names alone, for the embedded model. `code`: with instructions."""
    tests_per_program: Positive = 1
    """Alignment samples of one program: the test that failed, then others."""
    min_informative: NonNegative = 1
    """Fewest variables of an alignment sample that neither repeat a value of the input nor are set once, to a
    literal."""
    limits: AlignmentLimitsConfig = AlignmentLimitsConfig()
    """Limits on the size of an alignment sample."""
    growth: AlignmentGrowthConfig | None = None
    """Limits at the beginning; null: those of `limits` from the first step."""
    float_tolerance: NonNegativeFloat = 0.0
    """Relative error of a float that still counts as right; types must agree all the same."""
    max_new_tokens: Positive | None = None
    """Most tokens of an answer to an alignment sample; by default as for programs."""
    capacity: Positive = 4096
    """Capacity of the buffer; the oldest samples are dropped first."""
    per_problem: Positive = 8
    """Most buffered samples of one problem."""
    max_staleness: Positive | None = 16
    """Samples from a policy more than this many versions old are dropped; null: none."""
    traced_per_step: Positive | None = None
    """Most runs that are traced in a step; by default twice the alignment samples of a step, and four times while fewer
    than two steps' alignment samples wait."""
    evaluation_items: NonNegative = 100
    """Held-out items of trace inference, of output prediction and of test output prediction at every evaluation; made
    from solutions of held-out problems. 0: none."""
    sft_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of alignment samples, with their answers, among the demonstrations of the warm start; from the demonstrated
    programs."""
    sft_error_rate: Fraction = 0.0
    """Built-in problems: chance that the teacher skips an operation when it computes values of a program, as
    `sft.error_rate` is for writing it. 0: all answers are right."""

    def broken_rules(self) -> Iterator[str]:
        fields = type(self).model_fields
        given = {name for name in self.model_fields_set if getattr(self, name) != fields[name].default}
        unread = {
            ("programs", "reference"): {"growth", "max_staleness", "traced_per_step"},
            ("asks", "output"): {"min_informative"},
        }
        for (name, value), ignored in unread.items():
            if getattr(self, name) == value and (found := sorted(ignored & given)):
                yield f"{found[0]}: is ignored with {name} = {value}; remove it"
        if self.sft_error_rate and not self.sft_share:
            yield f"sft_error_rate = {self.sft_error_rate}: is ignored with sft_share = 0; remove it"
        if self.growth:
            for name in ("variables", "program_characters"):
                first, last = getattr(self.growth, name), getattr(self.limits, name)
                if first > last:
                    yield f"growth.{name} = {first}: must not be above limits.{name} = {last}"

    def limits_at(self, step: int) -> AlignmentLimitsConfig:
        """Limits on the size of an alignment sample of a step, counted from 0."""
        if self.growth is None or step >= self.growth.steps:
            return self.limits
        done = step / self.growth.steps
        return self.limits.model_copy(
            update={
                name: int(first + done * (getattr(self.limits, name) - first))
                for name, first in (
                    ("variables", self.growth.variables),
                    ("program_characters", self.growth.program_characters),
                )
            }
        )
