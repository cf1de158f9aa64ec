"""Benchmarks are scripts that import their neighbours: their folder is on the path here as it is when they run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
