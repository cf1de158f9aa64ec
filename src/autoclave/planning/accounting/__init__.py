"""Cost of a run: the shape of a model, memory, floating-point operations, devices, and the plan of a run.

Arithmetic on settings and on a model's `config.json`. Imports `core` and `config`; no torch, nothing else of ours.
"""

from autoclave.planning.accounting.fitting import (
    Rates,
    check_memory,
    excess,
    fits,
    rates_on,
    require_within_limits,
    smallest_change,
)
from autoclave.planning.accounting.memory import size_text
from autoclave.planning.accounting.plan import Lengths, PoolPlan, RunPlan, on_device, plan_for, plan_run
from autoclave.planning.accounting.shape import ModelShape, read_shape, shape_of
from autoclave.planning.accounting.speed import GPUS, NOTHING, Gpu, SequenceLengths, Throughput, peak_flops
from autoclave.planning.accounting.text import describe_plan

__all__ = [
    "GPUS",
    "NOTHING",
    "Gpu",
    "Lengths",
    "ModelShape",
    "PoolPlan",
    "Rates",
    "RunPlan",
    "SequenceLengths",
    "Throughput",
    "check_memory",
    "describe_plan",
    "excess",
    "fits",
    "on_device",
    "peak_flops",
    "plan_for",
    "plan_run",
    "rates_on",
    "read_shape",
    "require_within_limits",
    "shape_of",
    "size_text",
    "smallest_change",
]
