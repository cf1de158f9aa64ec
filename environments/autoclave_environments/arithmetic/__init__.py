"""Synthetic arithmetic in several steps, generated from a seed, split by pairs of adjacent operations.

`calculation.py` defines calculations and their text; `build.py` makes problems and splits pairs; `teacher.py` makes
demonstrations. Imports nothing heavy. Its settings are `autoclave.config.ArithmeticConfig`.
"""

from autoclave.config import ArithmeticConfig, SftConfig
from autoclave.problems import Demonstration
from autoclave_environments.arithmetic.build import Arithmetic, build_arithmetic
from autoclave_environments.arithmetic.teacher import arithmetic_demonstrations

__all__ = ["Arithmetic", "ArithmeticProblems", "arithmetic_demonstrations", "build_arithmetic"]


class ArithmeticProblems:
    """The source of `problems.name=arithmetic`; see `autoclave.problems.ProblemSource`."""

    heldout_description = (
        "Calculations with a pair of adjacent operations that occurs in no training problem or demonstration."
    )

    def __init__(self, config: ArithmeticConfig) -> None:
        """Generate the problems. Raises ConfigError: the settings allow too few."""
        self._config, built = config, build_arithmetic(config)
        self.train, self.heldout = built.train, built.heldout

    def demonstrations(self, sft: SftConfig) -> list[Demonstration]:
        return arithmetic_demonstrations(self._config, sft)
