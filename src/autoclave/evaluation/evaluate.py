"""Sampled pass@k and greedy pass@1 of a policy on a set of items, with bootstrap intervals and a table per family.

Sampler and judge are arguments. A response without a verdict is left out of its problem, never counted as wrong.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autoclave.core import FaultError, Group, Rollout, TaskItem
from autoclave.core.json import finite
from autoclave.core.rollout import IntArray
from autoclave.environments import Grader
from autoclave.evaluation.intervals import Interval, mean_or_nan, mean_pass_at_k, share_interval
from autoclave.rollout import Collection, NextTurn, Request, Sampler, SamplingParameters


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """One problem: of `judged` sampled responses `correct` were accepted; `greedy` is None if it has no verdict."""

    id: str
    family: str
    judged: int
    correct: int
    greedy: bool | None


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation. `samples` were drawn per problem; shares are over the sampled responses."""

    problems: tuple[ProblemResult, ...]
    samples: int
    temperature: float
    truncated_share: float
    no_verdict_share: float
    mean_response_length: float
    max_new_tokens: int
    """Limit of tokens of a response."""

    @cached_property
    def rates(self) -> dict[str, float]:
        """Share of correct responses of each problem that has a verdict."""
        return {p.id: p.correct / p.judged for p in self.problems if p.judged}

    @property
    def pass_at_1(self) -> float:
        """Mean over problems of the share of sampled responses that are accepted."""
        return float(np.mean(list(self.rates.values())))

    def pass_at_1_of(self, ids: frozenset[str]) -> float | None:
        """Return pass@1 over the problems `ids`, or over all if `ids` is empty; None without a verdict."""
        rates = [rate for id, rate in self.rates.items() if not ids or id in ids]
        return float(np.mean(rates)) if rates else None

    @property
    def pass_at_1_interval(self) -> Interval:
        return share_interval(list(self.rates.values()))

    @property
    def greedy(self) -> list[float]:
        """1 or 0 for each problem whose greedy response has a verdict."""
        return [float(p.greedy) for p in self.problems if p.greedy is not None]

    def pass_at(self, k: int) -> float:
        """Return unbiased pass@k over the problems with at least k verdicts; NaN without any."""
        return mean_pass_at_k(((p.judged, p.correct) for p in self.problems), k)

    def to_metrics(self) -> dict[str, Any]:
        """Return the figures as in metrics files, NaN if not measured."""
        interval = self.pass_at_1_interval
        greedy = share_interval(self.greedy) if self.greedy else Interval(math.nan, math.nan)
        return {
            "problems": len(self.problems),
            "samples": self.samples,
            "temperature": self.temperature,
            "pass@1": self.pass_at_1,
            "pass@1/low": interval.lower,
            "pass@1/high": interval.upper,
            f"pass@{self.samples}": self.pass_at(self.samples),
            "max_new_tokens": self.max_new_tokens,
            "truncated_share": self.truncated_share,
            "no_verdict_share": self.no_verdict_share,
            "response_length/mean": self.mean_response_length,
            "greedy": mean_or_nan(self.greedy),
            "greedy/low": greedy.lower,
            "greedy/high": greedy.upper,
            "families": self._families(),
        }

    def to_json(self) -> str:
        """Return the figures, null if not measured, and the result of every problem."""
        problems = [asdict(problem) for problem in self.problems]
        return json.dumps({"metrics": finite(self.to_metrics()), "problems": problems})

    def _families(self) -> dict[str, dict[str, float]]:
        table: dict[str, dict[str, float]] = {}
        for family in sorted({p.family for p in self.problems}):
            members = [p for p in self.problems if p.family == family]
            table[family] = {
                "problems": len(members),
                "pass@1": mean_or_nan([self.rates[p.id] for p in members if p.id in self.rates]),
                "greedy": mean_or_nan([float(p.greedy) for p in members if p.greedy is not None]),
            }
        return table


def evaluate(
    items: Sequence[TaskItem],
    *,
    sampler: Sampler,
    grade: Grader,
    encode: Callable[[TaskItem], IntArray],
    family: Callable[[TaskItem], str],
    parameters: SamplingParameters,
    samples: int,
    with_greedy: bool,
    seed: tuple[int, ...],
    next_turn: NextTurn | None = None,
) -> Evaluation:
    """Sample `samples` rollouts per item by `parameters`, one greedily if `with_greedy`, and judge them all.

    Raises:
        FaultError: no response has a verdict.
    """
    greedy = SamplingParameters(0.0, 1.0, parameters.max_new_tokens, parameters.stops)
    each = [parameters] * samples + [greedy] * with_greedy
    requests = [
        [Request(prompt, chosen, (*seed, index, sample)) for sample, chosen in enumerate(each)]
        for index, prompt in enumerate(map(encode, items))
    ]
    collection = Collection(items, requests, sampler, grade, next_turn=next_turn)
    with ExitStack() as ended:
        ended.callback(collection.abandon, "the evaluation ended")
        groups = collection.result()
    results = tuple(_result(group, samples, family(group.item)) for group in groups)
    sampled = [rollout for group in groups for rollout in group.rollouts[:samples]]
    if not any(result.judged for result in results):
        reasons = sorted({str(r.reward.verdict.fault) for r in sampled if r.reward.verdict})
        raise FaultError(f"no verdict on any of {len(sampled)} responses: {'; '.join(reasons[:3])}")
    return Evaluation(
        results,
        samples,
        parameters.temperature,
        truncated_share=float(np.mean([rollout.is_cut for rollout in sampled])),
        no_verdict_share=float(np.mean([r.reward.value is None for r in sampled])),
        mean_response_length=float(np.mean([r.num_sampled for r in sampled])),
        max_new_tokens=parameters.max_new_tokens,
    )


def _result(group: Group, samples: int, family: str) -> ProblemResult:
    judged = [accepted for rollout in group.rollouts[:samples] if (accepted := _accepted(rollout)) is not None]
    greedy = [_accepted(rollout) for rollout in group.rollouts[samples:]]
    return ProblemResult(group.item.id, family, len(judged), sum(judged), greedy[0] if greedy else None)


def _accepted(rollout: Rollout) -> bool | None:
    """Return whether all tests passed, or without a program the reward is 1; None without a verdict."""
    reward = rollout.reward
    if reward.verdict is None:
        return None if reward.value is None else reward.value == 1.0
    return None if reward.verdict.status is None else reward.verdict.is_accepted
