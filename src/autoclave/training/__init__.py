"""Stages, schedules and what surrounds them: warm start, checkpoints, metrics, the run folder and its report.

May import `evaluation`, `workers` and below. Is handed its parts by `compose`.
"""
