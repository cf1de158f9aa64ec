"""A plan for people: counts, memory by phase, and which GPUs it fits on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoclave.training.accounting.devices import GPUS, Gpu
from autoclave.training.accounting.plan import PoolPlan, RunPlan

GIB, MIB = 1 << 30, 1 << 20

USABLE_SHARE = 0.9
"""Of a GPU's memory; the rest is for the CUDA context, libraries and gaps between allocations."""


def describe_plan(plan: RunPlan) -> str:
    """The plan as lines of text."""
    return "\n".join(_lines(plan))


def fits(pool: PoolPlan, gpu: Gpu) -> bool:
    """Whether one device of the pool can be such a GPU."""
    return pool.peak.total <= gpu.memory_mib * MIB * USABLE_SHARE


def _lines(plan: RunPlan) -> Iterator[str]:
    shape, lengths = plan.shape, plan.lengths
    yield (
        f"model     {_count(shape.parameters)} parameters in {plan.dtype}; {shape.layers} layers, width "
        f"{shape.hidden_size}, vocabulary {shape.vocabulary}, context {shape.context}"
    )
    yield (
        f"learning  {_count(plan.learning_parameters)} parameters"
        + (" of adapters" if plan.learning_parameters != shape.parameters else "")
    )
    yield (
        f"lengths   prompts of {lengths.prompt} and responses of {lengths.response} tokens"
        + (f", of {lengths.evaluated} in evaluations" if lengths.evaluated else "")
        + "; all that follows is for these, so at most"
    )
    yield ""
    yield f"{'':<26}{'an iteration':>16}{'the run':>16}"
    for name, number in _counts(plan):
        yield f"{name:<26}{_count(number):>16}{_count(number * plan.iterations):>16}"
    yield (
        f"\nmicro-batches of {plan.micro_batch_rows} rows x {lengths.whole} tokens, {plan.micro_batches} an iteration; "
        f"{plan.iterations} iterations"
    )
    for pool in plan.pools:
        yield ""
        yield from _pool_lines(pool)
    yield ""
    yield from _gpu_lines(plan.pools)


def _counts(plan: RunPlan) -> list[tuple[str, float]]:
    return [
        ("prompts", plan.prompts),
        ("samples", plan.samples),
        ("sampled tokens", plan.sampled_tokens),
        ("optimizer steps", plan.optimizer_steps),
        ("operations to sample", plan.sampling_flops),
        ("operations to learn", plan.learning_flops),
    ]


def _pool_lines(pool: PoolPlan) -> Iterator[str]:
    yield f"memory of each device of pool {pool.name} ({', '.join(pool.workers)}; devices: {pool.devices})"
    yield f"{'':<22}" + "".join(f"{phase.name:>16}" for phase in pool.phases)
    parts = dict.fromkeys(part for phase in pool.phases for part in phase.parts)
    for part in parts:
        yield f"  {part:<20}" + "".join(f"{size_text(phase.parts.get(part, 0)):>16}" for phase in pool.phases)
    yield f"  {'all':<20}" + "".join(f"{size_text(phase.total):>16}" for phase in pool.phases)


def _gpu_lines(pools: Sequence[PoolPlan]) -> Iterator[str]:
    yield f"{'GPU':<14}{'memory':>10}   " + "".join(f"{f'pool {pool.name}':<24}" for pool in pools)
    for gpu in GPUS:
        yield (
            f"{gpu.name:<14}{size_text(gpu.memory_mib * MIB):>10}   " + "".join(_verdict(p, gpu) for p in pools)
        ).rstrip()
    yield f"A pool fits if its peak takes at most {USABLE_SHARE:.0%} of the memory; nothing here was tried on a device."


def _verdict(pool: PoolPlan, gpu: Gpu) -> str:
    share = pool.peak.total / (gpu.memory_mib * MIB)
    text = f"fits ({share:.0%})" if fits(pool, gpu) else f"no ({pool.peak.name}: {size_text(pool.peak.total)})"
    return f"{text:<24}"


def size_text(number: int) -> str:
    """Bytes with a unit."""
    if not number:
        return "-"
    return f"{number / GIB:.2f} GiB" if number >= GIB / 10 else f"{number / MIB:.2f} MiB"


def _count(number: float) -> str:
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:,.0f}"
