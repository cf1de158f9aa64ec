"""Settings: which problems a run trains on and which it holds out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from autoclave.config.base import Config, Fraction, Positive, Seed


class CurriculumConfig(Config):
    """The built-in curriculum: small generated Python tasks, split by pairs of adjacent operations."""

    name: Literal["curriculum"] = "curriculum"
    """Problems are generated from a seed."""

    seed: Seed = 0
    """Seed of the problems and the demonstrations; not of training."""

    train: Positive = 4000
    """Problems for reinforcement learning."""

    validation: Positive = 200
    """Problems for tuning."""

    heldout: Annotated[int, Field(ge=200)] = 300
    """Problems for the figures reported; at least 200, or the intervals are too wide to mean much."""

    heldout_share: Fraction = 0.25
    """Share of the pairs of adjacent operations that occur in no training program."""


class ProblemFilesConfig(Config):
    """Problems from files in the `autoclave-problem/1` format."""

    name: Literal["files"] = "files"
    """Problems are read from files."""

    train: Path
    """Problems to learn from."""

    heldout: Path
    """Problems to report on."""


ProblemsConfig = Annotated[CurriculumConfig | ProblemFilesConfig, Field(discriminator="name")]
