"""Schedules before they run: workload profiles, simulation, and which schedule and split of devices to take.

Arithmetic on numbers; no torch. What a run really takes is measured elsewhere.
"""

from autoclave.planning.candidates import Candidate, every_split, ideal, simulate_each
from autoclave.planning.collected import Assignment
from autoclave.planning.generate import CODE, MATHEMATICS, SEED, RewardTimes, Workload, generate
from autoclave.planning.measured import Observed, Rates, TokenTime, fit_token_time, measured_profile
from autoclave.planning.profile import Profile, Work, read_profile, write_profile
from autoclave.planning.recommend import Advice, describe, recommend
from autoclave.planning.schedule_run import ScheduleRun
from autoclave.planning.simulation import ScheduleName, Split, simulate

__all__ = [
    "CODE",
    "MATHEMATICS",
    "SEED",
    "Advice",
    "Assignment",
    "Candidate",
    "Observed",
    "Profile",
    "Rates",
    "RewardTimes",
    "ScheduleName",
    "ScheduleRun",
    "Split",
    "TokenTime",
    "Work",
    "Workload",
    "describe",
    "every_split",
    "fit_token_time",
    "generate",
    "ideal",
    "measured_profile",
    "read_profile",
    "recommend",
    "simulate",
    "simulate_each",
    "write_profile",
]
