"""Settings: an optimizer and the course of its learning rate."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, PositiveFloat


class OptimizerConfig(Config):
    """AdamW and the course of its learning rate."""

    learning_rate: PositiveFloat = 4e-4
    """Peak learning rate."""

    warmup_steps: NonNegative = 0
    """Optimizer steps of linear rise to the peak."""

    decay: Literal["none", "linear", "cosine"] = "linear"
    """Fall from the peak to `final_fraction` of it at the last step."""

    final_fraction: Fraction = 0.0
    """Learning rate at the end, as a share of the peak."""

    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """Decay rates of the two moments."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""

    gradient_clip: PositiveFloat = 1.0
    """Largest norm of the gradient over all parameters."""
