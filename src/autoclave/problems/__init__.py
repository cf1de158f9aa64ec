"""Problems, from generators and files, and their prompts. May import `core` and `config`; never torch, ray or vllm."""

from autoclave.problems.prompts import DemonstratedProgram, Demonstration, Messages, Template, problem_messages
from autoclave.problems.sets import ProblemSets, ProblemSource, require_fitting
from autoclave.problems.synthetic import SyntheticProblems, build_synthetic, demonstrations

__all__ = [
    "DemonstratedProgram",
    "Demonstration",
    "Messages",
    "ProblemSets",
    "ProblemSource",
    "SyntheticProblems",
    "Template",
    "build_synthetic",
    "demonstrations",
    "problem_messages",
    "require_fitting",
]
