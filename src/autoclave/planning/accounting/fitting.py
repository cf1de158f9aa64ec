"""Check that a plan fits on GPUs of a kind, and the smallest change of its settings by which it does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from autoclave.config import TrainConfig, TransformersEngineConfig, VllmEngineConfig
from autoclave.core import ConfigError
from autoclave.planning.accounting.plan import PoolPlan, RunPlan, plan_run
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
    """`config` with other values at dotted keys, checked as a whole.

    Raises:
        ValueError: they do not go together.
    """
    settings = config.model_dump()
    for key, value in change.items():
        *path, last = key.split(".")
        place = settings
        for name in path:
            place = place[name]
        place[last] = value
    return TrainConfig.model_validate(settings)
