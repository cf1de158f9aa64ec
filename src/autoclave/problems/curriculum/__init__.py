"""The built-in curriculum: small Python tasks generated from a seed, split by pairs of adjacent operations.

`operations.py` says what tables are made of; `lists.py`, `texts.py` and `integers.py` are the tables; `compose.py` puts
operations together; `behaviour.py` runs them on `inputs.py`; `split.py` keeps pairs apart; `build.py` makes problems
and `teacher.py` demonstrations. Imports nothing heavy.
"""

from autoclave.problems.curriculum.build import Curriculum, build_curriculum
from autoclave.problems.curriculum.teacher import demonstrated_programs, demonstrations

__all__ = ["Curriculum", "build_curriculum", "demonstrated_programs", "demonstrations"]
