"""What is learnt from rewards, and how: pure functions on tensors, and the algorithms that choose among them.

Letters, in every docstring here: **B** rollouts, **N** response tokens of all rollouts together, **T** response tokens
of one rollout, **G** rollouts of one group, **V** size of the vocabulary.

Batches are packed: a column is 1-D over the N response tokens or over the B rollouts, and the column `row` (N,) says
which rollout each token belongs to. Nothing is padded, and no function depends on the order of tokens or rollouts.

Imports torch; `masks` and `algorithm` also `autoclave.core`; the choices (`grpo`, `grpo_plus`, `choices`) also
`autoclave.config`. Not here: models, devices, processes, optimizers, files, logging.
"""

from autoclave.algorithms.advantages import group_advantages, group_token_advantages, rows_with_signal
from autoclave.algorithms.aggregation import sequence_mean, token_mean
from autoclave.algorithms.algorithm import Algorithm, Column, ColumnFunction, LossTerm, StepLoss
from autoclave.algorithms.choices import build_algorithm
from autoclave.algorithms.diagnostics import Diagnostics, step_metrics
from autoclave.algorithms.entropy import entropy, token_log_probs
from autoclave.algorithms.kl import k1, k2, k3
from autoclave.algorithms.losses import TokenLoss, clipped_policy_loss, entropy_bonus, kl_penalty
from autoclave.algorithms.masks import mask_no_verdict, mask_overlong
from autoclave.algorithms.supervised import supervised

__all__ = [
    "Algorithm",
    "Column",
    "ColumnFunction",
    "Diagnostics",
    "LossTerm",
    "StepLoss",
    "TokenLoss",
    "build_algorithm",
    "clipped_policy_loss",
    "entropy",
    "entropy_bonus",
    "group_advantages",
    "group_token_advantages",
    "k1",
    "k2",
    "k3",
    "kl_penalty",
    "mask_no_verdict",
    "mask_overlong",
    "rows_with_signal",
    "sequence_mean",
    "step_metrics",
    "supervised",
    "token_log_probs",
    "token_mean",
]
