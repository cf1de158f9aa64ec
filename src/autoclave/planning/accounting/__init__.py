"""Cost of a run: the shape of a model, memory, floating-point operations, devices, and the plan of a run.

Arithmetic on settings and on a model's `config.json`. Imports `core` and `config`; no torch, nothing else of ours.
"""
