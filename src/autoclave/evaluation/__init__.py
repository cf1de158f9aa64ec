"""Evaluation of a policy, with intervals. May import `workers`, `rollout`, `tasks` and below."""

from autoclave.core.lazy import lazily
from autoclave.evaluation.evaluate import Evaluation as Evaluation
from autoclave.evaluation.evaluate import ProblemResult as ProblemResult
from autoclave.evaluation.evaluate import evaluate as evaluate

__getattr__ = lazily(__name__)
