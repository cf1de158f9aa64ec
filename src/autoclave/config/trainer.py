"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat

LOGITS_CHUNK_BYTES = 512 << 20
"""Of the float32 logits of a chunk, where its size is not set."""


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

    logits_chunk: NonNegative = 0
    """Most tokens whose logits exist at a time; bounds memory where the vocabulary is large, changes no result. If a
    micro-batch has more response tokens, the backward pass computes their logits again. 0 means as many as take
    512 MiB in float32."""

    packing: Literal["auto", "always", "never"] = "auto"
    """Whether a micro-batch of policy and reference is one row, sequence after sequence without padding. `auto`: where
    attention has a kernel for sequences of different lengths (FlashAttention 2, on a GPU, in bfloat16). `always`:
    elsewhere too, by a mask that grows with the square of the micro-batch. Padded or packed, results are the same."""

    liger: bool = False
    """Compute norms, rotary embeddings and feed-forward layers of policy and reference by the Triton kernels of
    liger-kernel, on a GPU."""

    def chunk_for(self, vocabulary: int) -> int:
        """Tokens of a chunk of logits, for a model with this vocabulary."""
        return self.logits_chunk or max(1, LOGITS_CHUNK_BYTES // (4 * vocabulary))
