"""Environments of episodes: what a policy acts on between its turns, and graders of what it leaves."""

from autoclave.environments.interface import Environment, Grader
from autoclave.environments.program_grader import ProgramGrader

__all__ = ["Environment", "Grader", "ProgramGrader"]
