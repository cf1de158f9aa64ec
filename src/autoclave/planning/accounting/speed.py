"""Speed of a run: floating-point operations, tokens per second, and the share of the device's peak that they are (MFU).

Operations are what the mathematics needs, whatever a run computes twice:

    forward of a sequence of n tokens = 2 n (matrices of all layers) + 4 layers n^2 (width of the queries)
                                        + 2 (tokens with logits) (output embedding)
    backward = 2 x forward; forward alone where adapters learn and the weights do not

A multiply-add is two operations. Attention is counted in full, as in the source, although half of it is masked.

Source: Chowdhery et al., PaLM, arXiv:2204.02311, appendix B (6 N + 12 L H Q T per token of a training step); N is here
what a token is multiplied with: no input embedding, and the output embedding where logits are made alone.
"""

from dataclasses import dataclass

import numpy as np

from autoclave.core.rollout import IntArray
from autoclave.planning.accounting.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU."""

    name: str
    device_names: tuple[str, ...]
    """Names that drivers give it."""
    memory_mib: int
    """As its driver reports it."""
    peak_flops: float
    """Multiply-adds of bfloat16 matrices without sparsity, two operations each, per second."""
    bandwidth: float
    """Of its memory, in bytes per second."""

    @property
    def memory(self) -> int:
        return self.memory_mib << 20


GPUS = (
    Gpu("L4", ("NVIDIA L4",), 23034, 121e12, 300e9),
    Gpu("A10", ("NVIDIA A10",), 23028, 125e12, 600e9),
    Gpu("RTX 4090", ("NVIDIA GeForce RTX 4090",), 24564, 165e12, 1008e9),
    Gpu("A100 40 GB", ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), 40960, 312e12, 1555e9),
    Gpu("L40S", ("NVIDIA L40S",), 46068, 362e12, 864e9),
    Gpu("A100 80 GB", ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), 81920, 312e12, 1935e9),
    Gpu("H100 PCIe", ("NVIDIA H100 PCIe",), 81559, 756e12, 2000e9),
    Gpu("H100 SXM", ("NVIDIA H100 80GB HBM3",), 81559, 989e12, 3350e9),
    Gpu("H200", ("NVIDIA H200",), 143771, 989e12, 4800e9),
    Gpu("B200", ("NVIDIA B200",), 183359, 2250e12, 7700e9),
)
"""By memory. Rates are those of the vendor's data sheets, halved where a sheet counts sparsity, of several cards that
share a name the lower one."""


def peak_flops(device_name: str, dtype: str) -> float | None:
    """Operations per second that a device can do at most, or None where that is not known.

    `device_name` is that of the driver (`torch.cuda.get_device_name`). Rates are known for bfloat16 alone.
    """
    rates = (gpu.peak_flops for gpu in GPUS if device_name in gpu.device_names)
    return next(rates, None) if dtype == "bfloat16" else None


def forward_flops(shape: ModelShape, lengths: IntArray, num_logits: IntArray) -> float:
    """Operations of one forward pass over sequences.

    Args:
        lengths: (B,) int64, tokens of each sequence.
        num_logits: (B,) int64, how many of them have logits: the response tokens.
    """
    tokens, squares = float(lengths.sum()), float(np.square(lengths.astype(np.float64)).sum())
    matrices = 2 * tokens * shape.layers * shape.layer_matrices
    attention = 4 * squares * shape.layers * shape.query_width
    return matrices + attention + 2 * float(num_logits.sum()) * shape.embedding


def critic_flops(shape: ModelShape, lengths: IntArray, *, weights_learn: bool = True) -> float:
    """Operations of a critic of `shape`: its values, and learning from the same sequences once."""
    return (4 if weights_learn else 3) * forward_flops(shape, lengths, np.zeros_like(lengths))


def learning_flops(
    shape: ModelShape, lengths: IntArray, num_logits: IntArray, *, scoring_passes: float, weights_learn: bool = True
) -> float:
    """Operations of learning from sequences once: forward and backward, and forward alone for each scoring.

    Without `weights_learn` adapters do, whose own operations are not counted: they are few.
    """
    return ((3 if weights_learn else 2) + scoring_passes) * forward_flops(shape, lengths, num_logits)


@dataclass(frozen=True, slots=True)
class SequenceLengths:
    """Tokens of the rollouts that were computed with: `whole` (B,) with prompt, `response` (B,) without."""

    whole: IntArray
    response: IntArray


NOTHING = SequenceLengths(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
"""No rollout was computed with."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Turns what was computed, and how long that took, into metrics."""

    shape: ModelShape | None
    """Of the policy; None where its family is unknown, and then operations are not counted."""
    peak_flops: float | None
    """Of all devices of the trainer together, per second; None where it is not known."""
    scoring_passes: float
    """Forward passes beside the update, of all rows together: by the policy at the start of the step, unless the first
    optimizer step does that for its own, and by a reference if there is one."""
    critic: ModelShape | None = None
    """Of the critic, if there is one and its family is known."""
    weights_learn: bool = True
    """All weights, not adapters beside them."""

    def metrics(self, computed: SequenceLengths, seconds: float) -> dict[str, float]:
        """Metrics of one step whose learning took `seconds`.

        `learned_tokens_per_s` (prompt and response), `model_flops_per_s`, and `mfu`, the latter over `peak_flops`.
        """
        if seconds <= 0:
            return {}
        found = {"learned_tokens_per_s": float(computed.whole.sum()) / seconds}
        if self.shape is None:
            return found
        passes, all_learn = self.scoring_passes, self.weights_learn
        done = learning_flops(
            self.shape, computed.whole, computed.response, scoring_passes=passes, weights_learn=all_learn
        )
        done += critic_flops(self.critic, computed.whole, weights_learn=all_learn) if self.critic else 0.0
        found["model_flops_per_s"] = rate = done / seconds
        return found | ({"mfu": rate / self.peak_flops} if self.peak_flops else {})
