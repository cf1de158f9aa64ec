"""Ways in which the processes of a pool hold a model that trains: sharded, gathered, in which number formats, with
adapters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoclave.config import TrainConfig
from autoclave.planning.accounting.adapters import (
    adapter_activation_bytes,
    adapter_parameters,
    largest_adapter_tensor,
)
from autoclave.planning.accounting.memory import FLOAT32, activation_bytes, gathered_bytes, reduced_bytes
from autoclave.planning.accounting.shape import ModelShape

WIDTHS = {"float32": 4, "bfloat16": 2}
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Learning:
    """The weights that learn: all of them, or those of adapters beside them."""

    parameters: int
    width: int
    """Bytes of each, of its gradient and of its moments."""
    largest_tensor: int
    adapter: int
    """Bytes that come on top of the frozen weights."""

    @property
    def size(self) -> int:
        return self.parameters * self.width


def learning_of(config: TrainConfig, shape: ModelShape) -> Learning:
    """Of the policy.

    Raises:
        ConfigError: trainer.lora names a layer that the model does not have.
    """
    width, lora = WIDTHS[config.model.dtype], config.trainer.lora
    if lora is None:
        return Learning(shape.parameters, width, shape.largest_tensor, 0)
    parameters, width = adapter_parameters(shape, lora), max(width, FLOAT32)
    return Learning(parameters, width, largest_adapter_tensor(shape, lora), parameters * width)


@dataclass(frozen=True, slots=True)
class Holding:
    """Way in which the processes of a pool hold a model that trains."""

    width: int
    """Bytes of a weight at rest, of its gradient, and of each moment."""
    compute_width: int
    parts: int
    """Processes that weights at rest are split over."""
    is_gathered: bool
    """FSDP2 gathers weights to compute with them."""
    keeps_layers: bool
    is_offloaded: bool
    """Between computations all is in the memory of the host."""

    @staticmethod
    def of(config: TrainConfig, processes: int) -> Holding:
        trainer, width = config.trainer, WIDTHS[config.model.dtype]
        is_mixed = trainer.mixed_precision != "none"
        return Holding(
            width,
            WIDTHS["bfloat16"] if is_mixed else width,
            trainer.parts(processes),
            processes > 1 or is_mixed or trainer.cpu_offload,
            trainer.sharding == "zero2",
            trainer.cpu_offload,
        )

    def at_rest(self, num_bytes: int) -> int:
        """Share that each process has on its device of something so large."""
        return 0 if self.is_offloaded else math.ceil(num_bytes / self.parts)


def kept_bytes(config: TrainConfig, shape: ModelShape, rows: int, length: int, width: int) -> int:
    """Activations that autograd keeps of the layers."""
    recomputes, lora = config.trainer.activation_checkpointing, config.trainer.lora
    kept = activation_bytes(shape, rows, length, width, recomputes=recomputes)
    layers = 1 if recomputes else shape.layers
    return kept + rows * length * layers * adapter_activation_bytes(shape, lora, width) if lora else kept


def gathered_weights(shape: ModelShape, holding: Holding) -> dict[str, int]:
    """Parts that are gathered beside the shards while a model of `shape` computes; empty where nothing is gathered."""
    if not holding.is_gathered:
        return {}
    return {"gathered weights": gathered_bytes(shape, holding.compute_width, keeps_layers=holding.keeps_layers)}


def gathered_gradients(config: TrainConfig, shape: ModelShape, holding: Holding) -> int:
    """Whole gradients in a backward pass, before they are summed; those of adapters are small."""
    return reduced_bytes(shape, holding.compute_width) if holding.is_gathered and not config.trainer.lora else 0


def work_space_bytes(config: TrainConfig, learning: Learning) -> int:
    """Of an optimizer step.

    AdamW makes a root and a quotient of each tensor in turn on a CPU, and the roots of all together on a GPU.
    """
    at_once = 2 * learning.largest_tensor if config.model.device == "cpu" else learning.parameters
    return at_once * learning.width
