"""A plan for people: counts, memory by phase, and which GPUs it fits on."""

import os
from collections.abc import Iterator, Sequence

from autoclave.config import TrainConfig
from autoclave.planning.accounting.fitting import (
    ASSUMED_BANDWIDTH,
    ASSUMED_MFU,
    USABLE_SHARE,
    fits,
    rates_on,
    smallest_change,
)
from autoclave.planning.accounting.memory import size_text
from autoclave.planning.accounting.plan import PoolPlan, RunPlan
from autoclave.planning.accounting.speed import GPUS, Gpu


def describe_plan(plan: RunPlan, config: TrainConfig | None = None) -> str:
    """The plan as lines of text; with its settings, also what to change where it does not fit."""
    return "\n".join(_lines(plan, config))


def _lines(plan: RunPlan, config: TrainConfig | None) -> Iterator[str]:
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
    yield from _machine_lines(plan.pools) if plan.device == "cpu" else _gpu_lines(plan, config)


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
    yield f"{'':<27}" + "".join(f"{phase.name:>20}" for phase in pool.phases)
    parts = dict.fromkeys(part for phase in pool.phases for part in phase.parts)
    for part in parts:
        yield f"  {part:<25}" + "".join(f"{size_text(phase.parts.get(part, 0)):>20}" for phase in pool.phases)
    yield f"  {'all':<25}" + "".join(f"{size_text(phase.total):>20}" for phase in pool.phases)
    if pool.on_first_device:
        yield f"  {size_text(pool.on_first_device)} of it on the first device alone, which publishes."
    if share := max(phase.share for phase in pool.phases):
        yield f"  The engine takes {share:.0%} of the device while it samples, and its cache is what the rest leaves."


def _machine_lines(pools: Sequence[PoolPlan]) -> Iterator[str]:
    """Return whether the processes of all pools fit in the memory of this machine together."""
    needed = sum(pool.peak.total * pool.devices for pool in pools)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    verdict = "fits" if needed <= memory * USABLE_SHARE else "does not fit"
    yield f"On the CPU: {size_text(needed)} beside libraries; {verdict} this machine, which has {size_text(memory)}."


def _gpu_lines(plan: RunPlan, config: TrainConfig | None) -> Iterator[str]:
    yield (
        f"{'GPU':<14}{'memory':>10}   "
        + "".join(f"{f'pool {pool.name}':<26}" for pool in plan.pools)
        + f"{'sampled/s':>10}{'trained/s':>10}{'hours':>9}  smallest change that makes it fit"
    )
    for gpu in GPUS:
        rates = rates_on(plan, gpu)
        change = smallest_change(config, plan, gpu) if config else []
        yield (
            f"{gpu.name:<14}{size_text(gpu.memory):>10}   "
            + "".join(f"{_verdict(pool, gpu):<26}" for pool in plan.pools)
            + f"{rates.sampled_tokens_per_s:>10,.0f}{rates.learned_tokens_per_s:>10,.0f}{rates.hours:>9,.1f}  "
            + ("none known" if change is None else " ".join(change))
        ).rstrip()
    yield f"A pool fits if its peak takes at most {USABLE_SHARE:.0%} of the memory; nothing here was tried on a device."
    yield (
        f"Tokens per second and hours assume {ASSUMED_MFU:.0%} of the peak rate and {ASSUMED_BANDWIDTH:.0%} of the "
        "bandwidth of data sheets; rewards, publishing and evaluation come on top. Measured: --calibrate."
    )


def _verdict(pool: PoolPlan, gpu: Gpu) -> str:
    peak = pool.peak_on(gpu.memory)
    total = peak.total_on(gpu.memory)
    return f"fits ({total / gpu.memory:.0%})" if fits(pool, gpu) else f"no ({peak.name}: {size_text(total)})"


def _count(number: float) -> str:
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:,.0f}"
