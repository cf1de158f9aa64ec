"""Duration of a run on GPUs of a kind, from their data sheets; `autoclave plan --calibrate` measures it instead.

    learning   operations / (devices x peak x MFU)
    decoding   tokens of all rows in turn: each pass reads the weights and the keys and values of the rows, at a share
               of the bandwidth, or multiplies them at the MFU, whichever takes longer

The MFU is assumed: public figures of training with reinforcement learning on H100 and H200 lie between 0.11 and 0.37.
Rewards, publishing, evaluation and waiting for the longest response are left out, so a run takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoclave.planning.accounting.devices import Gpu
from autoclave.planning.accounting.plan import RunPlan

ASSUMED_MFU = 0.25
ASSUMED_BANDWIDTH = 0.6
"""Share of the bandwidth that decoding reaches."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Estimates for one kind of GPU."""

    sampled_tokens_per_s: float
    """Of all samplers together."""
    learned_tokens_per_s: float
    """Of all trainers together; prompts and responses."""
    iteration_s: float
    hours: float
    """Of all iterations."""


def rates_on(plan: RunPlan, gpu: Gpu) -> Rates:
    """The rates of a run whose pools have such GPUs."""
    work, learners = plan.sampling, plan.devices_of("actor")
    compute = work.devices * gpu.peak_flops * ASSUMED_MFU
    read_s = (work.weight_bytes + work.rows * work.row_bytes) / (work.devices * gpu.bandwidth * ASSUMED_BANDWIDTH)
    flops_per_token = plan.sampling_flops / (plan.samples * plan.lengths.whole)
    decoded_per_s = work.copies * work.rows / max(read_s, work.rows * flops_per_token / compute)
    prompts_s = plan.prompts * plan.lengths.prompt * flops_per_token / (work.copies * compute)
    sampling_s = plan.sampled_tokens / decoded_per_s + prompts_s
    learning_s = plan.learning_flops / (learners * gpu.peak_flops * ASSUMED_MFU)
    iteration_s = max(sampling_s, learning_s) if work.overlaps else sampling_s + learning_s
    return Rates(
        sampled_tokens_per_s=plan.sampled_tokens / sampling_s,
        learned_tokens_per_s=plan.samples * plan.lengths.whole / learning_s,
        iteration_s=iteration_s,
        hours=iteration_s * plan.iterations / 3600,
    )
