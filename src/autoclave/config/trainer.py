"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config


class TrainerConfig(Config):
    """How the models that learn are held and computed; the frozen reference is sharded and rounded as they are."""

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
