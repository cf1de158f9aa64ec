"""Ways in which the processes of a pool hold a model that trains: sharded, gathered, in which number formats, with
adapters.

An adapter (LoRA) of a layer (in -> out) has two matrices, (rank, in) and (out, rank), in float32 at least.
"""

import math
from dataclasses import dataclass

from autoclave.config import LoraConfig, TrainConfig
from autoclave.core import ConfigError
from autoclave.core.json import nearest
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
    """Of the policy. Raises ConfigError: trainer.lora names a layer that the model does not have."""
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
    def of(config: TrainConfig, processes: int) -> "Holding":
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


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer of each decoder layer: what its input is, and how many numbers go in and out."""

    name: str
    reads: str
    inputs: int
    outputs: int


def linear_layers(shape: ModelShape) -> tuple[Linear, ...]:
    """The linear layers of one decoder layer, by the names that they have in `transformers`."""
    hidden, queries, keys, inner = shape.hidden_size, shape.query_width, shape.key_value_width, shape.intermediate_size
    attention = (
        Linear("q_proj", "first norm", hidden, queries),
        Linear("k_proj", "first norm", hidden, keys),
        Linear("v_proj", "first norm", hidden, keys),
        Linear("o_proj", "attention", queries, hidden),
    )
    if not shape.is_gated:
        return (*attention, Linear("c_fc", "second norm", hidden, inner), Linear("c_proj", "product", inner, hidden))
    gated = (Linear(name, "second norm", hidden, inner) for name in ("gate_proj", "up_proj"))
    return (*attention, *gated, Linear("down_proj", "product", inner, hidden))


def adapted_layers(shape: ModelShape, lora: LoraConfig) -> list[Linear]:
    """Those of one decoder layer that get an adapter. Raises ConfigError: a target is no linear layer of the model."""
    layers = linear_layers(shape)
    known = [layer.name for layer in layers]
    for target in lora.targets:
        if target not in known:
            raise ConfigError(
                f"trainer.lora.targets: {target!r} is no linear layer of this model; {nearest(target, known)}"
            )
    return [layer for layer in layers if not lora.targets or layer.name in lora.targets]


def adapter_parameters(shape: ModelShape, lora: LoraConfig) -> int:
    """Weights of all adapters. Raises ConfigError: as `adapted_layers`."""
    sizes = (layer.inputs + layer.outputs for layer in adapted_layers(shape, lora))
    return shape.layers * lora.rank * sum(sizes)


def largest_adapter_tensor(shape: ModelShape, lora: LoraConfig) -> int:
    return lora.rank * max(max(layer.inputs, layer.outputs) for layer in adapted_layers(shape, lora))


def adapter_activation_bytes(shape: ModelShape, lora: LoraConfig, width: int) -> int:
    """Difference to what autograd keeps of a token in one decoder layer when all weights train; mostly less than
    nothing.

    Frozen weights need no input of their layer, and frozen RMSNorms not what they normalised. Adapters need their
    inputs, each a float32 copy of its own where `width` is smaller, and the `rank` numbers between the two matrices.
    What attention gives out is kept by attention itself.
    """
    layers = adapted_layers(shape, lora)
    inputs = {layer.reads: layer.inputs for layer in linear_layers(shape) if layer.reads != "attention"}
    frozen = sum(inputs.values()) * width
    if shape.norm_parameters == 1:
        frozen += 2 * shape.hidden_size * width
        frozen += (shape.query_width + shape.key_value_width) * width if shape.has_query_key_norm else 0
    shared = {layer.reads: layer.inputs for layer in layers if layer.reads != "attention"}
    read = sum(shared.values()) if width >= FLOAT32 else sum(layer.inputs for layer in layers)
    return (read + lora.rank * len(layers)) * FLOAT32 - frozen
