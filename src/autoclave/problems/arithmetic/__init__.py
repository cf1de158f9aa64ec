"""The built-in mathematics: arithmetic in several steps, generated from a seed, split by pairs of operations in a row.

`calculation.py` says what a calculation is and how it is written; `build.py` makes problems and keeps pairs apart;
`teacher.py` makes demonstrations. Imports nothing heavy.
"""

from autoclave.problems.arithmetic.build import Arithmetic, build_arithmetic
from autoclave.problems.arithmetic.teacher import arithmetic_demonstrations

__all__ = ["Arithmetic", "arithmetic_demonstrations", "build_arithmetic"]
