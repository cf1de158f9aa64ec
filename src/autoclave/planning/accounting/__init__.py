"""Cost of a run: the shape of a model, memory, floating-point operations, devices, and the plan of a run.

Arithmetic on settings and on a model's `config.json`. Imports `core` and `config`; no torch, nothing else of ours.
"""

from autoclave.planning.accounting.fitting import fits, smallest_change
from autoclave.planning.accounting.limits import check_memory, excess, require_within_limits
from autoclave.planning.accounting.plan import Lengths, PoolPlan, RunPlan, on_device, plan_for, plan_run
from autoclave.planning.accounting.shape import ModelShape, read_shape, shape_of
from autoclave.planning.accounting.speed import (
    GPUS,
    NOTHING,
    Gpu,
    Rates,
    SequenceLengths,
    Throughput,
    peak_flops,
    rates_on,
)
from autoclave.planning.accounting.text import describe_plan, size_text

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
