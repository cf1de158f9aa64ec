"""Schedules before they run: workload profiles, simulation, and which schedule and split of devices to take.

Arithmetic on numbers; no torch. What a run really takes is measured elsewhere.
"""

from autoclave.planning.profile import Profile, Work
from autoclave.planning.schedule_plan import every_split
from autoclave.planning.schedule_run import ScheduleRun
from autoclave.planning.simulation import ScheduleName, Split, simulate

__all__ = ["Profile", "ScheduleName", "ScheduleRun", "Split", "Work", "every_split", "simulate"]
