"""Check that a plan fits on GPUs, or into the memory of pools; the smallest change by which it does; its speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from autoclave.config import TrainConfig, TransformersEngineConfig, VllmEngineConfig
from autoclave.core import ConfigError
from autoclave.planning.accounting.memory import GIB, size_text
from autoclave.planning.accounting.plan import PoolPlan, RunPlan, plan_for, plan_run
from autoclave.planning.accounting.sampling import share_of_device
from autoclave.planning.accounting.speed import Gpu

USABLE_SHARE = 0.9
"""Of a GPU's memory; the rest is for the CUDA context, libraries and gaps between allocations."""

Change = dict[str, object]


def fits(pool: PoolPlan, gpu: Gpu) -> bool:
    """Return whether one device of the pool can be such a GPU."""
    return pool.peak_on(gpu.memory).total_on(gpu.memory) <= gpu.memory * USABLE_SHARE


def smallest_change(config: TrainConfig, plan: RunPlan, gpu: Gpu) -> list[str] | None:
    """The settings to change, as overrides, so that all pools fit; empty if they do, None if none that is known helps.

    Fewer settings come before more, and those that cost less time before others; none changes what is learnt.
    """
    changes = list(_changes(config, plan))
    for count in range(4):
        for chosen in combinations(changes, count):
            change = {key: value for each in chosen for key, value in each.items()}
            if len(change) < sum(map(len, chosen)):  # two values of one setting
                continue
            try:
                found = plan_run(_changed(config, change), plan.shape, plan.lengths)
            except (ConfigError, ValueError):
                continue  # these settings do not go together
            if all(fits(pool, gpu) for pool in found.pools):
                return [
                    f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in change.items()
                ]
    return None


def _changes(config: TrainConfig, plan: RunPlan) -> Iterator[Change]:
    """Single settings, those that cost least first."""
    engine, trainer = config.sampler.engine, config.trainer
    for divisor in (2, 4, 8, 16):
        if isinstance(engine, TransformersEngineConfig) and engine.batch_size > divisor:
            yield {"sampler.engine.batch_size": engine.batch_size // divisor}
        if isinstance(engine, VllmEngineConfig) and not share_of_device(config) and engine.cache_mb > 256 * divisor:
            yield {"sampler.engine.cache_mb": engine.cache_mb // divisor}
    for divisor in (2, 4, 8):
        if config.micro_batch_tokens // divisor >= plan.lengths.whole:
            yield {"micro_batch_tokens": config.micro_batch_tokens // divisor}
    if not trainer.activation_checkpointing:
        yield {"trainer.activation_checkpointing": True}
    home = config.workers.actor
    if config.pools[home].executor != "inline":
        for factor in (2, 4, 8):
            yield {f"pools.{home}.processes": config.pools[home].processes * factor}
    if not trainer.cpu_offload:
        yield {"trainer.cpu_offload": True}


def _changed(config: TrainConfig, change: Change) -> TrainConfig:
    """`config` with other values at dotted keys, checked as a whole: ValueError if they do not go together."""
    settings = config.model_dump()
    for key, value in change.items():
        *path, last = key.split(".")
        place = settings
        for name in path:
            place = place[name]
        place[last] = value
    return TrainConfig.model_validate(settings)


def check_memory(config: TrainConfig) -> None:
    """Compare the plan with `pools.NAME.memory_gb`, where that is set.

    Raises ConfigError: a pool needs more; the message names pool, need, limit and fix. InputError: the plan cannot be
    made.
    """
    if any(pool.memory_gb is not None for pool in config.pools.values()):
        require_within_limits(config, plan_for(config))


def require_within_limits(config: TrainConfig, plan: RunPlan) -> None:
    """The same for a plan that was made. Raises ConfigError: as `check_memory`."""
    for pool in plan.pools:
        limit = config.pools[pool.name].memory_gb
        if limit is not None and pool.peak.total > limit * GIB:
            raise ConfigError(
                f"pools.{pool.name}.memory_gb = {limit:g}: its groups ({', '.join(pool.workers)}) need "
                f"{size_text(pool.peak.total)} at each rank (phase {pool.peak.name!r}, prompts of "
                f"{plan.lengths.prompt} and responses of {plan.lengths.response} tokens); {_fix(pool)}"
            )


def _fix(pool: PoolPlan) -> str:
    movable = [group for group in pool.workers if group != "actor"] if len(pool.workers) > 1 else []
    moved = "critic" if "critic" in movable else next(iter(movable), None)
    smaller = "sampler.engine.batch_size" if pool.peak.name in ("sample", "evaluate") else "micro_batch_tokens"
    return f"lower {smaller}" + (f", or move a group to a pool of its own (workers.{moved})" if moved else "")


def excess(config: TrainConfig, measured: Mapping[str, Sequence[tuple[int, int]]]) -> list[str]:
    """A line for each pool whose workers took more than it may.

    Args:
        measured: for each worker group and rank the number of its process, and the bytes of that at its peak. Peaks of
            several processes need not have been at one moment, so their sum is at least what was held.
    """
    lines: list[str] = []
    for name, pool in config.pools.items():
        homes = config.workers.places()
        found = [group for group in measured if homes.get(group.partition("-")[0]) == name]
        replicas = [[group] for group in found if "-" in group]  # of samplers; each has the pool's limit to itself
        for groups in replicas or [found]:
            ranks = zip(*(measured[group] for group in groups), strict=True)
            together = max((sum(dict(processes).values()) for processes in ranks), default=0)
            if pool.memory_gb is None or together <= pool.memory_gb * GIB:
                continue
            lines.append(
                f"pool {name}: the peaks of its groups ({', '.join(groups)}) are {size_text(together)} together, more "
                f"than pools.{name}.memory_gb = {pool.memory_gb:g}"
            )
    return lines


ASSUMED_MFU = 0.25
ASSUMED_BANDWIDTH = 0.6
"""Share of the bandwidth that decoding reaches."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Estimates for one kind of GPU."""

    sampled_tokens_per_s: float
    """Of all samplers together."""
    learned_tokens_per_s: float
    """Of all trainers together; prompts and responses."""
    iteration_s: float
    hours: float
    """Of all iterations."""


def rates_on(plan: RunPlan, gpu: Gpu) -> Rates:
    """The rates of a run whose pools have such GPUs."""
    work, learners = plan.sampling, plan.devices_of("actor")
    compute = work.devices * gpu.peak_flops * ASSUMED_MFU
    read_s = (work.weight_bytes + work.rows * work.row_bytes) / (work.devices * gpu.bandwidth * ASSUMED_BANDWIDTH)
    flops_per_token = plan.sampling_flops / (plan.samples * plan.lengths.whole)
    decoded_per_s = work.copies * work.rows / max(read_s, work.rows * flops_per_token / compute)
    prompts_s = plan.prompts * plan.lengths.prompt * flops_per_token / (work.copies * compute)
    sampling_s = plan.sampled_tokens / decoded_per_s + prompts_s
    learning_s = plan.learning_flops / (learners * gpu.peak_flops * ASSUMED_MFU)
    iteration_s = max(sampling_s, learning_s) if work.overlaps else sampling_s + learning_s
    return Rates(
        sampled_tokens_per_s=plan.sampled_tokens / sampling_s,
        learned_tokens_per_s=plan.samples * plan.lengths.whole / learning_s,
        iteration_s=iteration_s,
        hours=iteration_s * plan.iterations / 3600,
    )
