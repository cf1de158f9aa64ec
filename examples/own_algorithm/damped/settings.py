"""Settings of `damped`. Must not import torch."""

from __future__ import annotations

from typing import Literal

from autoclave.config import GroupSettings
from autoclave.config.base import Fraction


class DampedConfig(GroupSettings):
    """GRPO's advantages, with a factor for negative ones."""

    name: Literal["damped"] = "damped"
    """The algorithm."""

    negative_weight: Fraction = 0.5
    """Factor of negative advantages."""
