"""Synthetic arithmetic in several steps, generated from a seed, split by pairs of adjacent operations.

`calculation.py` defines calculations and their text; `build.py` makes problems and splits pairs; `teacher.py` makes
demonstrations. Imports nothing heavy.
"""

from autoclave.problems.arithmetic.build import Arithmetic, build_arithmetic
from autoclave.problems.arithmetic.teacher import arithmetic_demonstrations

__all__ = ["Arithmetic", "arithmetic_demonstrations", "build_arithmetic"]
