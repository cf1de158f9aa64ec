"""Where problems come from and how they are asked. May import `core` and `config`; never torch, ray or vllm."""

from autoclave.problems.curriculum import Curriculum, Demonstration, build_curriculum, demonstrations
from autoclave.problems.prompts import Messages, Template, problem_messages
from autoclave.problems.sets import ProblemSets

__all__ = [
    "Curriculum",
    "Demonstration",
    "Messages",
    "ProblemSets",
    "Template",
    "build_curriculum",
    "demonstrations",
    "problem_messages",
]
