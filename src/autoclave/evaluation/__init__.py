"""Evaluation of a policy, with intervals. May import `workers`, `rollout`, `tasks` and below."""

from autoclave.core.lazy import lazily
from autoclave.evaluation.evaluate import Evaluation as Evaluation
from autoclave.evaluation.evaluate import ProblemResult as ProblemResult
from autoclave.evaluation.evaluate import evaluate as evaluate
from autoclave.evaluation.intervals import Interval as Interval
from autoclave.evaluation.intervals import bootstrap_interval as bootstrap_interval
from autoclave.evaluation.intervals import mean_pass_at_k as mean_pass_at_k
from autoclave.evaluation.intervals import pass_at_k as pass_at_k
from autoclave.evaluation.intervals import share_interval as share_interval
from autoclave.evaluation.intervals import wilson_interval as wilson_interval

__getattr__ = lazily(__name__)
