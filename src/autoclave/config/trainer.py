"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from collections.abc import Iterator
from typing import Literal

from autoclave.config.base import Config, Fraction, NonNegative, NonNegativeFloat, Positive, PositiveFloat


class OptimizerConfig(Config):
    """AdamW and its learning-rate schedule."""

    learning_rate: PositiveFloat = 4e-4
    """Peak learning rate."""
    warmup_steps: NonNegative = 0
    """Optimizer steps of linear rise to the peak."""
    decay: Literal["none", "linear", "cosine"] = "linear"
    """Fall from the peak to `final_fraction` of it at the last step."""
    final_fraction: Fraction = 0.0
    """Learning rate at the end, as a share of the peak."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """Decay rates of the two moments."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay."""
    gradient_clip: PositiveFloat = 1.0
    """Largest norm of the gradient over all parameters."""


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
    packing: Literal["auto", "always", "never", "shared_prompts"] = "auto"
    """Pack a micro-batch of policy and reference into one row, sequence after sequence without padding. `auto`: where
    attention has a kernel for sequences of different lengths (FlashAttention 2, on a GPU, in bfloat16); on the CPU,
    if the model is a Llama, Qwen2 or Qwen3 with a hidden size of at least 128, as `shared_prompts`. `always`:
    elsewhere too, by a mask that grows with the square of the micro-batch. `shared_prompts`: each prompt is computed
    once for all its responses, which stand behind it in one row; attention alone computes whole sequences. Results are
    the same up to rounding."""
    liger: bool = False
    """Compute norms, rotary embeddings and feed-forward layers of policy and reference by the Triton kernels of
    liger-kernel, on a GPU."""

    def broken_rules(self) -> Iterator[str]:
        if self.shard_size and self.sharding == "none":
            yield (
                f"shard_size = {self.shard_size}: is ignored with sharding = none, by which each process has a copy; "
                "remove it, or use sharding=zero3"
            )

    def of(self, group: Literal["critic", "reference"]) -> "TrainerConfig":
        """The settings for this group, where they differ from the actor's."""
        own = self.critic_sharding if group == "critic" else self.reference_sharding
        return self.model_copy(update={"sharding": own or self.sharding})

    def parts(self, processes: int) -> int:
        """Processes that each copy of a model is split over, of so many that hold it."""
        return 1 if self.sharding == "none" else min(self.shard_size or processes, processes)

    def chunk_for(self, vocabulary: int) -> int:
        """Tokens of a chunk of logits, for a model with this vocabulary."""
        return self.logits_chunk or max(1, LOGITS_CHUNK_BYTES // (4 * vocabulary))


class CriticConfig(Config):
    """The critic (value model), for algorithms that read its values."""

    path: str = ""
    """Folder or hub name of a model whose trunk it begins with, and its head if it has one (a critic that was saved, a
    reward model). Empty: the trunk of the policy that training starts from."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3)
    """Optimizer of the critic, whose head starts at zero."""


class TeacherConfig(Config):
    """A frozen policy that is the reference, in place of the one that training starts from: on-policy distillation."""

    path: str = ""
    """Folder or hub name of a model with the tokenizer of the policy. Empty: no teacher."""


class RewardModelConfig(Config):
    """A reward model whose score is added to the reward of the judge."""

    path: str = ""
    """Folder or hub name of a sequence classifier with one label. Empty: the verdict alone is the reward."""
    weight: PositiveFloat = 1.0
    """The reward is that of the judge + this x score."""

    def broken_rules(self) -> Iterator[str]:
        if not self.path and self.weight != type(self).model_fields["weight"].default:
            yield f"weight = {self.weight}: there is no reward model; set path, or remove it"
