"""Settings: how weights get from the trainer to samplers, and how that is checked."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, Positive, PositiveFloat


class ProbeConfig(Config):
    """A few short responses after each publish, whose log-probs trainer and samplers must agree on."""

    prompts: Positive = 4
    """How many prompts each sampler answers, the first of the training set."""

    tokens: Positive = 8
    """Most tokens of each response."""

    limit: PositiveFloat | None = None
    """Largest mean gap in nats per token, and a tenth of the largest gap of one token; above it the run stops. Left
    out: what rounding explains, 1e-4 in float32 and 0.1 in bfloat16."""


class PublishConfig(Config):
    """How new weights get to samplers."""

    dtype: Literal["model", "bfloat16"] = "model"
    """The number format that samplers hold weights in: that of the model, or rounded to bfloat16, which halves memory
    and traffic and makes log-probs differ from the trainer's."""

    content: Literal["weights", "adapter"] = "weights"
    """`adapter`: only the matrices of adapters travel, and samplers add them to the frozen weights, which they keep;
    needs trainer.lora."""

    deadline_s: PositiveFloat = 600.0
    """How long any one answer of a trainer or sampler is waited for, in seconds; then the run stops and names it."""

    probe: ProbeConfig | None = ProbeConfig()
    """How a publish is checked; null: it is not."""
