"""Settings of a publish: in which form weights go to samplers, and the check that they have arrived."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, Positive, PositiveFloat


class SyncCheckConfig(Config):
    """Checks that samplers compute with what was published: digests of weights, and log-probs of the same tokens."""

    prompts: Positive = 4
    """Number of prompts."""
    tokens: Positive = 8
    """Most tokens sampled for each."""
    limit: PositiveFloat | None = None
    """Largest mean gap between the log-probs of both sides for the same weights, in nats per token; above it, or where
    a single token of the prompts is off by ten times as much, the run ends. null: what rounding explains, 1e-4 in
    float32 and 0.1 in bfloat16."""


class PublishConfig(Config):
    """Transfer of new weights from the trainer to the samplers."""

    content: Literal["weights", "adapter"] | None = None
    """`adapter`: with `trainer.lora` the matrices of the adapters alone. null: that with `trainer.lora`, else all
    `weights`."""
    dtype: Literal["bfloat16"] | None = None
    """Number format in which weights are published and samplers compute. null: `model.dtype`."""
    timeout_s: Positive = 3600
    """Weights that have not reached all samplers after so many seconds end the run. Longer than the longest response
    where `schedule.partial` is false."""
    sync_check: SyncCheckConfig | None = SyncCheckConfig()
    """The comparisons of trainer and samplers; null: none."""
