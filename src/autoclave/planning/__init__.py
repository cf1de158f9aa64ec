"""Schedules before they run: workload profiles, simulation, and which schedule and split of devices to take.

Arithmetic on numbers; no torch. What a run really takes is measured elsewhere.
"""

from autoclave.planning.collected import Assignment
from autoclave.planning.measured import Observed, Profile, Rates, Work, fit_token_time, measured_profile
from autoclave.planning.recommend import Candidate, describe, every_split, recommend, simulate_each
from autoclave.planning.schedule_run import ScheduleRun
from autoclave.planning.simulation import ScheduleName, Split, simulate

__all__ = [
    "Assignment",
    "Candidate",
    "Observed",
    "Profile",
    "Rates",
    "ScheduleName",
    "ScheduleRun",
    "Split",
    "Work",
    "describe",
    "every_split",
    "fit_token_time",
    "measured_profile",
    "recommend",
    "simulate",
    "simulate_each",
]
