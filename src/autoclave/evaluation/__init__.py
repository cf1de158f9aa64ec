"""Evaluation of a policy, with intervals. May import `workers`, `rollout`, `tasks` and below."""

from autoclave.evaluation.evaluate import Evaluation, ProblemResult, evaluate
from autoclave.evaluation.intervals import (
    Interval,
    bootstrap_interval,
    mean_pass_at_k,
    pass_at_k,
    share_interval,
    wilson_interval,
)

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
