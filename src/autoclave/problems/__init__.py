"""Where problems come from and how they are asked. May import `core` and `config`; never torch, ray or vllm."""

from autoclave.problems.arithmetic import Arithmetic, arithmetic_demonstrations, build_arithmetic
from autoclave.problems.curriculum import Curriculum, build_curriculum, demonstrations
from autoclave.problems.demonstration import DemonstratedProgram, Demonstration
from autoclave.problems.fitting import require_fitting
from autoclave.problems.prompts import Messages, Template, problem_messages
from autoclave.problems.sets import ProblemSets

__all__ = [
    "Arithmetic",
    "Curriculum",
    "DemonstratedProgram",
    "Demonstration",
    "Messages",
    "ProblemSets",
    "Template",
    "arithmetic_demonstrations",
    "build_arithmetic",
    "build_curriculum",
    "demonstrations",
    "problem_messages",
    "require_fitting",
]
