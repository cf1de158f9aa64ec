"""Speed of a run: tokens per second, and the share of the device's peak that is model arithmetic (MFU)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoclave.core.rollout import IntArray
from autoclave.planning.accounting.flops import critic_flops, learning_flops
from autoclave.planning.accounting.shape import ModelShape


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
