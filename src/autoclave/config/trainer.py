"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from autoclave.config.base import Config, NonNegative, Positive, PositiveFloat

Sharding = Literal["none", "zero2", "zero3"]

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
    """Sharding and precision of the models that train; the frozen reference is sharded and rounded as they are."""

    lora: LoraConfig | None = None
    """Reinforcement learning trains adapters of policy and critic and leaves all other weights as they are; null: it
    trains all weights. The warm start always trains all."""

    sharding: Sharding = "zero3"
    """Sharding over the processes of a worker group (FSDP2). `zero3` (FULL_SHARD): each keeps its
    part of weights, gradients and optimizer state, and has one whole layer at a time. `zero2` (SHARD_GRAD_OP): the
    same, but layers stay whole from the forward to the backward pass. `none` (NO_SHARD): each keeps everything."""

    critic_sharding: Sharding | None = None
    """That of the critic; null: `sharding`."""

    reference_sharding: Sharding | None = None
    """That of the reference; null: `sharding`."""

    shard_size: NonNegative = 0
    """Consecutive processes that hold one copy of a model together, as `sharding` says; the others hold further copies
    (HYBRID_SHARD). The processes of a node: layers are gathered within nodes, and only gradients are summed across
    them. 0: all processes."""

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
    """Pack a micro-batch of policy and reference into one row, sequence after sequence without padding. `auto`: where
    attention has a kernel for sequences of different lengths (FlashAttention 2, on a GPU, in bfloat16). `always`:
    elsewhere too, by a mask that grows with the square of the micro-batch. Padded or packed, results are the same."""

    liger: bool = False
    """Compute norms, rotary embeddings and feed-forward layers of policy and reference by the Triton kernels of
    liger-kernel, on a GPU."""

    @model_validator(mode="after")
    def _something_is_sharded(self) -> Self:
        if self.shard_size and self.sharding == "none":
            raise ValueError(
                f"shard_size = {self.shard_size}: is ignored with sharding = none, by which each process has a copy; "
                "remove it, or use sharding=zero3"
            )
        return self

    def of(self, group: Literal["critic", "reference"]) -> TrainerConfig:
        """The settings for this group, where they differ from the actor's."""
        own = self.critic_sharding if group == "critic" else self.reference_sharding
        return self.model_copy(update={"sharding": own or self.sharding})

    def parts(self, processes: int) -> int:
        """Processes that each copy of a model is split over, of so many that hold it."""
        return 1 if self.sharding == "none" else min(self.shard_size or processes, processes)

    def chunk_for(self, vocabulary: int) -> int:
        """Tokens of a chunk of logits, for a model with this vocabulary."""
        return self.logits_chunk or max(1, LOGITS_CHUNK_BYTES // (4 * vocabulary))
