"""Levels of isolation. Plain names: what only names a level loads no settings."""

from typing import Literal

Level = Literal["sealed", "restricted", "open"]
LEVELS: tuple[Level, ...] = ("open", "restricted", "sealed")
"""From least to most isolated."""
