"""Relative-KL clipping: the update of each group stays within a trust region of its own.

The thesis's introduction names it without a formula; this is ours. It is to the KL of a group what gradient clipping is
to a norm. Within one `learn` the policy moves from one optimizer step to the next, further on some groups than on
others; what pulls a group that has moved far enough is scaled down, and no other group pays for it.
"""

from torch import Tensor

from autoclave.algorithms.kl import k3
from autoclave.algorithms.packed import check_tokens, numbered, row_lengths, row_sums


def group_trust(old_log_probs: Tensor, step_log_probs: Tensor, group: Tensor, row: Tensor, *, limit: float) -> Tensor:
    """The factor by which the advantages of each group are scaled in an optimizer step.

        s_g = min(1, limit / D_g),   D_g = mean over the tokens of g of k3, the estimate of KL(old || now)

    Args:
        old_log_probs: (N,) float, under the policy at the start of `learn`; all rows of the optimizer step.
        step_log_probs: (N,) float, under the policy now, at the start of the optimizer step.
        group: (B,) int64, the group of each row.
        row: (N,) int64, the rollout of each token.
        limit: in nats per token.

    Returns:
        (N,) float64 in (0, 1]; 1 everywhere in the first optimizer step, where the policy is still the old one.

    Raises:
        ValueError: the first two are not both (N,).

    Source: Berkeley EECS-2025-123, chapter 1 ("relative-KL clipping, which bounds the per-group policy update in its
    own local trust region"); the formula is ours.
    """
    check_tokens(row, old_log_probs=old_log_probs, step_log_probs=step_log_probs)
    divergence = k3(old_log_probs.double(), step_log_probs.double())
    index, num_groups = numbered(group)
    of_token = index[row]
    num_tokens = row_lengths(of_token, num_groups).clamp(min=1)
    of_group = row_sums(divergence, of_token, num_groups) / num_tokens
    return (limit / of_group.clamp(min=limit))[of_token]
