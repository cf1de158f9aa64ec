"""Memory of published weights: the memory that the trainer writes to, and what samplers hold of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoclave.config import TrainConfig
from autoclave.config.engine import RemoteEngineSettings
from autoclave.planning.accounting.adapters import adapter_parameters
from autoclave.planning.accounting.holding import WIDTHS, Holding, learning_of
from autoclave.planning.accounting.sampling import devices_of_sampler
from autoclave.planning.accounting.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Publishing:
    """Bytes of one process, on its device."""

    of_trainer: int
    """The memory that it writes to."""
    of_sampler: int
    """Weights that it samples with. Where it maps what is written on another pool, both versions that are there count;
    memory that a pool maps twice counts once."""
    in_passing_of_trainer: int
    """On top, while weights are written."""
    in_passing_of_sampler: int
    """On top, while weights are taken over."""


def publishing_of(config: TrainConfig, shape: ModelShape, holding: Holding) -> Publishing:
    """By the routes of docs/concepts/weights.md; `holding` is the actor's."""
    whole = shape.parameters * WIDTHS[config.sampling_dtype]
    is_adapter, engine = config.publishes_adapter, config.sampler.engine.name
    merged = shape.largest_tensor * holding.width if config.trainer.lora and not is_adapter else 0
    # An engine that computes with what is published needs nothing besides; one that has no place for adapters is given
    # the sums of these and frozen weights, which are kept.
    is_elsewhere = isinstance(config.sampler.engine, RemoteEngineSettings)
    own = 0 if is_elsewhere else math.ceil(whole / devices_of_sampler(config))
    sums = own if is_adapter and engine not in ("transformers", "vllm") else 0
    kept = own + sums if is_adapter else 0 if engine == "transformers" else own
    if _is_alias(config, holding):
        return Publishing(0, kept, 0, 0)
    published = _adapter_bytes(config, shape) if is_adapter else whole
    homes = config.workers.places()
    is_together = homes["sampler"] == homes["actor"]
    if config.model.device == "cpu":
        mapped = 0 if is_together or _is_one_process(config) else 2 * published
        return Publishing(math.ceil(2 * published / holding.parts), kept + mapped, merged, sums)
    gathered = shape.largest_tensor * holding.width if holding.is_gathered else 0
    in_passing = max(merged, gathered)
    if not is_together:
        return Publishing(published, kept + 2 * published, in_passing, sums)
    if config.pools[homes["actor"]].processes == 1:
        return Publishing(2 * published, kept, in_passing, sums)
    return Publishing(0, kept or whole, in_passing, sums or shape.largest_tensor * WIDTHS[config.sampling_dtype])


def _is_one_process(config: TrainConfig) -> bool:
    homes = config.workers.places()
    return all(config.pools[homes[group]].executor == "inline" for group in ("actor", "sampler"))


def _is_alias(config: TrainConfig, holding: Holding) -> bool:
    """Return whether samplers compute with the tensors of the trainer themselves."""
    is_plain = not config.trainer.lora and not config.publish.dtype and not holding.is_gathered
    return _is_one_process(config) and is_plain and config.schedule.is_time_shared


def _adapter_bytes(config: TrainConfig, shape: ModelShape) -> int:
    return (
        adapter_parameters(shape, config.trainer.lora) * learning_of(config, shape).width if config.trainer.lora else 0
    )
