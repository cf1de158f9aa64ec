"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, Positive, PositiveFloat


class LoraConfig(Config):
    """Low-rank adapters that learn in place of all weights; without dropout, which makes ratios of policies noisy."""

    rank: Positive = 16
    """Rows of the smaller matrix of an adapter."""

    alpha: PositiveFloat = 32.0
    """Adapters are multiplied by `alpha / rank`."""

    targets: tuple[str, ...] = ()
    """Linear layers that get an adapter, by the last part of their names, for example [q_proj, v_proj]; empty: all but
    the output embedding."""


class TrainerConfig(Config):
    """How the models that learn are held and computed; the frozen reference is sharded and rounded as they are."""

    lora: LoraConfig | None = None
    """Reinforcement learning trains adapters of policy and critic and leaves all other weights as they are; null: it
    trains all weights. The warm start always trains all."""

    sharding: Literal["none", "zero2", "zero3"] = "zero3"
    """What the processes of a worker group share (FSDP2); one process has all. `zero3`: each keeps its part of weights,
    gradients and optimizer state, and has one whole layer at a time. `zero2`: the same, but layers stay whole from the
    forward to the backward pass. `none`: each keeps everything."""

    mixed_precision: Literal["none", "bfloat16"] = "none"
    """`bfloat16`: layers compute in bfloat16, from weights that stay in float32, as do gradients and the optimizer."""

    activation_checkpointing: bool = False
    """Keep only the input of each decoder layer for the backward pass and compute the rest again: less memory, a third
    more work."""

    cpu_offload: bool = False
    """Keep weights, gradients and optimizer state in the memory of the host, and take optimizer steps there; a GPU has
    only the layers that it computes."""

    compile: bool = False
    """Compile the decoder layers (torch.compile); the first updates take minutes longer."""
