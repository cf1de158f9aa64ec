"""Synthetic problems: small Python tasks generated from a seed, split by pairs of adjacent operations.

`tables.py` has the operations (`operations.py`); `compose.py` combines them into tasks; `behaviour.py` runs them on
`inputs.py`; `split.py` splits pairs; `build.py` makes problems and `teacher.py` demonstrations. Imports nothing heavy.
"""

from autoclave.problems.synthetic.build import SyntheticProblems, build_synthetic
from autoclave.problems.synthetic.teacher import demonstrated_attempts, demonstrated_programs, demonstrations

__all__ = ["SyntheticProblems", "build_synthetic", "demonstrated_attempts", "demonstrated_programs", "demonstrations"]
