"""Learning from rewards: pure functions on tensors, and the algorithms that choose among them.

Letters, in every docstring here: **B** rollouts, **N** response tokens of all rollouts together, **T** response tokens
of one rollout, **G** rollouts of one group, **V** size of the vocabulary.

Batches are packed: a column is 1-D over the N response tokens or over the B rollouts, and the column `row` (N,) says
which rollout each token belongs to. Nothing is padded. The tokens of a rollout stand in the order in which they were
sampled; rollouts stand in any order, and may be interleaved.

Imports torch; `masks`, `groups` and `algorithm` also `autoclave.core`; the choices (`options`,
`choices`) also `autoclave.config`. Not here: models, devices, processes, optimizers, files, logging.
"""

from autoclave.algorithms.advantages import generalised_advantages as generalised_advantages
from autoclave.algorithms.advantages import generalised_turn_advantages as generalised_turn_advantages
from autoclave.algorithms.advantages import group_advantages as group_advantages
from autoclave.algorithms.advantages import group_statistics as group_statistics
from autoclave.algorithms.advantages import group_token_advantages as group_token_advantages
from autoclave.algorithms.advantages import group_turn_advantages as group_turn_advantages
from autoclave.algorithms.advantages import returns as returns
from autoclave.algorithms.advantages import reward_to_go as reward_to_go
from autoclave.algorithms.advantages import rows_with_signal as rows_with_signal
from autoclave.algorithms.advantages import whitened as whitened
from autoclave.algorithms.aggregation import budget_mean as budget_mean
from autoclave.algorithms.aggregation import sequence_mean as sequence_mean
from autoclave.algorithms.aggregation import sequence_sum as sequence_sum
from autoclave.algorithms.aggregation import token_mean as token_mean
from autoclave.algorithms.algorithm import Algorithm as Algorithm
from autoclave.algorithms.algorithm import AlgorithmState as AlgorithmState
from autoclave.algorithms.algorithm import StepLoss as StepLoss
from autoclave.algorithms.choices import build_algorithm as build_algorithm
from autoclave.algorithms.choices import supervised as supervised
from autoclave.algorithms.columns import Column as Column
from autoclave.algorithms.columns import ColumnFunction as ColumnFunction
from autoclave.algorithms.control import Controller as Controller
from autoclave.algorithms.control import adapted_kl_coefficient as adapted_kl_coefficient
from autoclave.algorithms.control import entropy_until_saturation as entropy_until_saturation
from autoclave.algorithms.control import fixed as fixed
from autoclave.algorithms.diagnostics import Diagnostics as Diagnostics
from autoclave.algorithms.diagnostics import batch_metrics as batch_metrics
from autoclave.algorithms.diagnostics import step_metrics as step_metrics
from autoclave.algorithms.entropy import entropy as entropy
from autoclave.algorithms.entropy import token_log_probs as token_log_probs
from autoclave.algorithms.estimators import Estimator as Estimator
from autoclave.algorithms.estimators import chain as chain
from autoclave.algorithms.groups import is_uniform as is_uniform
from autoclave.algorithms.importance import masked_importance as masked_importance
from autoclave.algorithms.importance import truncated_importance as truncated_importance
from autoclave.algorithms.kl import k1 as k1
from autoclave.algorithms.kl import k2 as k2
from autoclave.algorithms.kl import k3 as k3
from autoclave.algorithms.ledger import LedgerEntry as LedgerEntry
from autoclave.algorithms.ledger import ledger as ledger
from autoclave.algorithms.losses import TokenLoss as TokenLoss
from autoclave.algorithms.losses import clipped_policy_loss as clipped_policy_loss
from autoclave.algorithms.losses import controlled_entropy_bonus as controlled_entropy_bonus
from autoclave.algorithms.losses import entropy_bonus as entropy_bonus
from autoclave.algorithms.losses import kl_penalty as kl_penalty
from autoclave.algorithms.losses import policy_gradient_loss as policy_gradient_loss
from autoclave.algorithms.losses import sequence_clipped_policy_loss as sequence_clipped_policy_loss
from autoclave.algorithms.losses import value_loss as value_loss
from autoclave.algorithms.losses import weighted_policy_loss as weighted_policy_loss
from autoclave.algorithms.options import mask_format as mask_format
from autoclave.algorithms.options import mask_no_verdict as mask_no_verdict
from autoclave.algorithms.options import mask_overlong as mask_overlong
from autoclave.algorithms.packed import numbered as numbered
from autoclave.algorithms.parts import Equation as Equation
from autoclave.algorithms.parts import LossTerm as LossTerm
from autoclave.algorithms.rewards import outcome_token_rewards as outcome_token_rewards
from autoclave.algorithms.rewards import penalised_rewards as penalised_rewards
from autoclave.algorithms.rewards import penalised_token_rewards as penalised_token_rewards
from autoclave.algorithms.rewards import soft_overlong_rewards as soft_overlong_rewards
from autoclave.algorithms.rewards import token_kl as token_kl
from autoclave.algorithms.trust_region import group_trust as group_trust
from autoclave.algorithms.variance import without_dominant as without_dominant
from autoclave.core.lazy import lazily

__getattr__ = lazily(__name__)
