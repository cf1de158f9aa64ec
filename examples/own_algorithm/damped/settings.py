"""Settings of `damped`. No torch here: they are read wherever settings are."""

from __future__ import annotations

from typing import Literal

from autoclave.config import GroupSettings
from autoclave.config.base import Fraction


class DampedConfig(GroupSettings):
    """GRPO's advantages, in which failures pull less than successes."""

    name: Literal["damped"] = "damped"
    """The algorithm."""

    negative_weight: Fraction = 0.5
    """Negative advantages are multiplied by this."""
