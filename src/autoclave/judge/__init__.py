"""A program and the tests of a problem in, a verdict out. Imports `core`, `config` and `sandbox`; free of torch."""

from autoclave.judge.interface import Judge, JudgeJob
from autoclave.judge.local import LocalJudge
from autoclave.judge.stream import stream

__all__ = ["Judge", "JudgeJob", "LocalJudge", "stream"]
