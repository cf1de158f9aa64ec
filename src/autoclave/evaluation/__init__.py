"""Evaluation of a policy, with intervals. May import `workers`, `rollout`, `tasks` and below; is handed what it
uses.
"""

from autoclave.evaluation.evaluate import Evaluation, ProblemResult, evaluate
from autoclave.evaluation.intervals import Interval, bootstrap_interval, share_interval, wilson_interval
from autoclave.evaluation.pass_at_k import mean_pass_at_k, pass_at_k

__all__ = [
    "Evaluation",
    "Interval",
    "ProblemResult",
    "bootstrap_interval",
    "evaluate",
    "mean_pass_at_k",
    "pass_at_k",
    "share_interval",
    "wilson_interval",
]
