"""Synthetic problems: small Python tasks generated from a seed, split by pairs of adjacent operations.

`tables.py` has the operations (`operations.py`); `compose.py` combines them into tasks; `behaviour.py` runs them on
`inputs.py`; `split.py` splits pairs; `build.py` makes problems and `teacher.py` demonstrations. Imports nothing heavy.
Its settings are `autoclave.config.SyntheticConfig`.
"""

from collections.abc import Iterator

from autoclave.config import SftConfig, SyntheticConfig
from autoclave.core import Problem
from autoclave.problems import DemonstratedProgram, Demonstration
from autoclave_environments.synthetic.build import SyntheticProblems, build_synthetic
from autoclave_environments.synthetic.teacher import demonstrated_attempts, demonstrated_programs, demonstrations

__all__ = [
    "SyntheticProblems",
    "SyntheticSource",
    "build_synthetic",
    "demonstrated_attempts",
    "demonstrated_programs",
    "demonstrations",
]


class SyntheticSource:
    """The source of `problems.name=synthetic`; see `autoclave.problems.ProgramSource`."""

    heldout_description = (
        "Problems whose program has a pair of adjacent operations that occurs in no training problem or demonstration; "
        "problems that behave like a training problem are excluded as well."
    )

    def __init__(self, config: SyntheticConfig) -> None:
        """Generate the problems. Raises ConfigError: the settings allow too few."""
        self._config, built = config, build_synthetic(config)
        self.train, self.heldout = built.train, built.heldout

    def demonstrations(self, sft: SftConfig, *, fences: bool = True) -> list[Demonstration]:
        return demonstrations(self._config, sft, fences=fences)

    def demonstrated_programs(self, sft: SftConfig, *, misreading_rate: float) -> Iterator[DemonstratedProgram]:
        return demonstrated_programs(self._config, sft, misreading_rate=misreading_rate)

    def demonstrated_attempts(
        self, sft: SftConfig, *, turns: int, fences: bool = True
    ) -> Iterator[tuple[Problem, list[Demonstration]]]:
        return demonstrated_attempts(self._config, sft, turns=turns, fences=fences)
