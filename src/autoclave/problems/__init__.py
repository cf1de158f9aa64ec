"""Problems, from generators and files, and their prompts. May import `core` and `config`; never torch, ray or vllm."""

from autoclave.problems.prompts import DemonstratedProgram, Demonstration, Messages, Template, problem_messages
from autoclave.problems.sets import ProblemSets, ProblemSource, ProgramSource, program_source, require_fitting

__all__ = [
    "DemonstratedProgram",
    "Demonstration",
    "Messages",
    "ProblemSets",
    "ProblemSource",
    "ProgramSource",
    "Template",
    "problem_messages",
    "program_source",
    "require_fitting",
]
