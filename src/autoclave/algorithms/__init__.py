"""Learning from rewards: pure functions on tensors, and the algorithms that choose among them.

Letters, in every docstring here: **B** rollouts, **N** response tokens of all rollouts together, **T** response tokens
of one rollout, **G** rollouts of one group, **V** size of the vocabulary.

Batches are packed: a column is 1-D over the N response tokens or over the B rollouts, and the column `row` (N,) says
which rollout each token belongs to. Nothing is padded. The tokens of a rollout stand in the order in which they were
sampled; rollouts stand in any order, and may be interleaved.

Imports torch; `masks`, `groups` and `algorithm` also `autoclave.core`; the choices (`options`,
`choices`) also `autoclave.config`. Not here: models, devices, processes, optimizers, files, logging.
"""

from autoclave.algorithms.advantages import (
    generalised_advantages,
    group_advantages,
    group_statistics,
    group_token_advantages,
    returns,
    reward_to_go,
    rows_with_signal,
    whitened,
)
from autoclave.algorithms.aggregation import budget_mean, sequence_mean, sequence_sum, token_mean
from autoclave.algorithms.algorithm import (
    Algorithm,
    AlgorithmState,
    Equation,
    LossTerm,
    StepLoss,
)
from autoclave.algorithms.choices import build_algorithm, supervised
from autoclave.algorithms.columns import Column, ColumnFunction
from autoclave.algorithms.control import Controller, adapted_kl_coefficient, entropy_until_saturation, fixed
from autoclave.algorithms.diagnostics import Diagnostics, batch_metrics, step_metrics
from autoclave.algorithms.entropy import entropy, token_log_probs
from autoclave.algorithms.estimators import Estimator, chain
from autoclave.algorithms.groups import is_uniform
from autoclave.algorithms.importance import masked_importance, truncated_importance
from autoclave.algorithms.kl import k1, k2, k3
from autoclave.algorithms.ledger import LedgerEntry, ledger
from autoclave.algorithms.losses import (
    TokenLoss,
    clipped_policy_loss,
    controlled_entropy_bonus,
    entropy_bonus,
    kl_penalty,
    policy_gradient_loss,
    sequence_clipped_policy_loss,
    value_loss,
    weighted_policy_loss,
)
from autoclave.algorithms.options import mask_format, mask_no_verdict, mask_overlong
from autoclave.algorithms.packed import numbered
from autoclave.algorithms.rewards import (
    outcome_token_rewards,
    penalised_rewards,
    penalised_token_rewards,
    soft_overlong_rewards,
    token_kl,
)
from autoclave.algorithms.trust_region import group_trust
from autoclave.algorithms.variance import without_dominant

__all__ = [
    "Algorithm",
    "AlgorithmState",
    "Column",
    "ColumnFunction",
    "Controller",
    "Diagnostics",
    "Equation",
    "Estimator",
    "LedgerEntry",
    "LossTerm",
    "StepLoss",
    "TokenLoss",
    "adapted_kl_coefficient",
    "batch_metrics",
    "budget_mean",
    "build_algorithm",
    "chain",
    "clipped_policy_loss",
    "controlled_entropy_bonus",
    "entropy",
    "entropy_bonus",
    "entropy_until_saturation",
    "fixed",
    "generalised_advantages",
    "group_advantages",
    "group_statistics",
    "group_token_advantages",
    "group_trust",
    "is_uniform",
    "k1",
    "k2",
    "k3",
    "kl_penalty",
    "ledger",
    "mask_format",
    "mask_no_verdict",
    "mask_overlong",
    "masked_importance",
    "numbered",
    "outcome_token_rewards",
    "penalised_rewards",
    "penalised_token_rewards",
    "policy_gradient_loss",
    "returns",
    "reward_to_go",
    "rows_with_signal",
    "sequence_clipped_policy_loss",
    "sequence_mean",
    "sequence_sum",
    "soft_overlong_rewards",
    "step_metrics",
    "supervised",
    "token_kl",
    "token_log_probs",
    "token_mean",
    "truncated_importance",
    "value_loss",
    "weighted_policy_loss",
    "whitened",
    "without_dominant",
]
