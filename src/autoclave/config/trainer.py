"""Settings: how the models that learn are held and computed. They change speed and memory, and no mathematics."""

from __future__ import annotations

from typing import Literal

from autoclave.config.base import Config, NonNegative

LOGITS_CHUNK_MB = 512
"""Float32 logits of a chunk of its own choosing, in MiB."""


class TrainerConfig(Config):
    """How the models that learn are held and computed."""

    logits_chunk: NonNegative = 0
    """Most tokens whose logits exist at a time; bounds memory where the vocabulary is large, changes no result. If a
    micro-batch has more response tokens, the backward pass computes their logits again. 0 means as many as take
    512 MiB in float32."""

    packing: Literal["auto", "always", "never"] = "auto"
    """Whether a micro-batch is one row, sequence after sequence without padding. `auto`: where attention has a kernel
    for sequences of different lengths (FlashAttention 2, on a GPU, in bfloat16). `always`: elsewhere too, by a mask
    that grows with the square of the micro-batch. Padded or packed, results are the same."""

    liger: bool = False
    """Compute norms, rotary embeddings and feed-forward layers by the Triton kernels of liger-kernel, on a GPU."""

    def chunk_for(self, vocabulary: int) -> int:
        """Tokens of a chunk of logits, for a model with this vocabulary."""
        return self.logits_chunk or max(1, (LOGITS_CHUNK_MB << 20) // (4 * vocabulary))
