"""Settings: when a run says that it is not well."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autoclave.config.base import Config, Fraction, NonNegative, PositiveFloat


class HealthConfig(Config):
    """When a training run raises an alert. Alerts change nothing; a number that is not finite always ends the run."""

    window: Annotated[int, Field(ge=3)] = 10
    """Steps that a step is compared with: those just before it for spikes, the first ones of the run for entropy."""

    gradient_norm_spike: Annotated[float, Field(gt=1)] = 10.0
    """Alert when the gradient norm is more than this times its median over the window before."""

    kl_spike: Annotated[float, Field(gt=1)] = 10.0
    """Alert when a KL metric is more than this times its median over the window before, and above `kl_floor`."""

    kl_floor: PositiveFloat = 0.01
    """KL, in nats per token, below which no rise is a spike."""

    entropy_collapse: Fraction = 0.1
    """Alert when entropy falls below this share of its mean over the first window; 0 never."""

    entropy_growth: Annotated[float, Field(gt=1)] = 2.0
    """Alert when entropy rises above this times its mean over the first window."""

    length_growth: Annotated[float, Field(gt=1)] = 1.3
    """Alert when responses of the last window are longer than this times those of the window before, and their reward
    is not higher."""

    overfit_every: NonNegative = 10
    """Steps between two judgings of accepted programs by all tests, where `task.tests` samples some; 0 means never.
    With `task.tests: all` there is nothing more to judge by."""

    overfit_limit: Fraction = 0.05
    """Alert when more than this share of the programs accepted by the sampled tests fails others."""
