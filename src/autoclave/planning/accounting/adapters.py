"""Effect of adapters (LoRA) on the size of a model and the cost of training it: parameters and activations.

An adapter of a layer (in -> out) has two matrices, (rank, in) and (out, rank), in float32 at least.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoclave.config import LoraConfig
from autoclave.core import ConfigError
from autoclave.core.json import nearest
from autoclave.planning.accounting.shape import ModelShape

FLOAT32 = 4


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
    """Those of one decoder layer that get an adapter.

    Raises:
        ConfigError: a target is no linear layer of the model.
    """
    layers = linear_layers(shape)
    known = [layer.name for layer in layers]
    for target in lora.targets:
        if target not in known:
            raise ConfigError(
                f"trainer.lora.targets: {target!r} is no linear layer of this model; {nearest(target, known)}"
            )
    return [layer for layer in layers if not lora.targets or layer.name in lora.targets]


def adapter_parameters(shape: ModelShape, lora: LoraConfig) -> int:
    """Weights of all adapters.

    Raises:
        ConfigError: as `adapted_layers`.
    """
    sizes = (layer.inputs + layer.outputs for layer in adapted_layers(shape, lora))
    return shape.layers * lora.rank * sum(sizes)


def largest_adapter_tensor(shape: ModelShape, lora: LoraConfig) -> int:
    """Weights of the largest matrix of an adapter."""
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
