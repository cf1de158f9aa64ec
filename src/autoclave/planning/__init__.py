"""Schedules before they run: workload profiles, simulation, and which schedule and split of devices to take.

Arithmetic on numbers; no torch. What a run really takes is measured elsewhere.
"""
