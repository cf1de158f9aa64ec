"""Environments of episodes: what a policy acts on between its turns, and graders of what it leaves."""

from autoclave.environments.interface import Environment, Grader, MultiTurnTask
from autoclave.environments.program_grader import ProgramGrader
from autoclave.environments.state_grader import DamagedState, State, StateGrader, Table, changed_files, changed_rows
from autoclave.environments.suites import Suite, SuiteGrader

__all__ = [
    "DamagedState",
    "Environment",
    "Grader",
    "MultiTurnTask",
    "ProgramGrader",
    "State",
    "StateGrader",
    "Suite",
    "SuiteGrader",
    "Table",
    "changed_files",
    "changed_rows",
]
