"""Check that a run stays within the memory that its pools may take: before it, by its plan; after it, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoclave.config import TrainConfig
from autoclave.core import ConfigError
from autoclave.planning.accounting.plan import PoolPlan, RunPlan, plan_for
from autoclave.planning.accounting.text import GIB, size_text


def check_memory(config: TrainConfig) -> None:
    """Compare the plan with `pools.NAME.memory_gb`, where that is set.

    Raises:
        ConfigError: a pool needs more; the message names pool, need, limit and fix.
        InputError: the plan cannot be made.
    """
    if any(pool.memory_gb is not None for pool in config.pools.values()):
        require_within_limits(config, plan_for(config))


def require_within_limits(config: TrainConfig, plan: RunPlan) -> None:
    """The same for a plan that was made.

    Raises:
        ConfigError: as `check_memory`.
    """
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
        config: the settings.
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
