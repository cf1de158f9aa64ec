"""Whether a run is well: pure rules over the metrics of its steps. An alert changes nothing in the run.

Numbers that are not finite are another matter: the actor ends the run before it overwrites a weight
(`workers/finite.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from statistics import fmean, median

from autoclave.config import HealthConfig
from autoclave.core import Group, Reward, TaskItem

Metrics = Mapping[str, float]

GRADIENT_NORM, ENTROPY = "policy/gradient_norm", "policy/entropy"
REWARD, LENGTH = "reward/mean", "response_length/mean"
KL = ("policy/approx_kl", "policy/reference_kl")
"""How far the policy moved in a step, and how far it is from the reference."""
OVERFIT = "overfit_to_sampled_tests"
LIMIT = "curriculum/max_new_tokens"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should look at."""

    name: str
    seen: str
    """The numbers."""
    rule: str
    """The setting that they break."""
    mend: str
    """What one can do."""

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}; rule: {self.rule}. {self.mend}"


Rule = Callable[[Sequence[Metrics], HealthConfig], Iterator[Alert]]


def alerts(history: Sequence[Metrics], config: HealthConfig) -> list[Alert]:
    """What is wrong at the last step of `history`, the metrics of all steps so far in order."""
    return [alert for rule in RULES for alert in rule(history, config)] if history else []


@dataclass(slots=True)
class Health:
    """The history of a run, and which alerts its last step had: an alert is told when it begins."""

    config: HealthConfig
    history: list[Metrics] = field(default_factory=list[Metrics])
    _raised: frozenset[str] = frozenset()

    def go_on_from(self, rows: Sequence[Metrics]) -> None:
        """Take `rows`, the metrics of all steps that a resumed run has behind it, as what was seen."""
        self.history = [_watched(row) for row in rows]
        self._raised = frozenset(alert.name for alert in alerts(self.history, self.config))

    def observe(self, metrics: Metrics) -> list[Alert]:
        """The alerts that begin with a step of these metrics."""
        self.history.append(_watched(metrics))
        found = alerts(self.history, self.config)
        new = [alert for alert in found if alert.name not in self._raised]
        self._raised = frozenset(alert.name for alert in found)
        return new


# --- Rules ---------------------------------------------------------------------------------------------------------


def _gradient_norm_spike(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    now, usual = _against_window(history, GRADIENT_NORM, config.window)
    if now > config.gradient_norm_spike * usual:
        yield Alert(
            "gradient_norm_spike",
            f"gradient norm {now:.3g}, its median over {config.window} steps was {usual:.3g}",
            f"at most health.gradient_norm_spike = {config.gradient_norm_spike:g} times the median",
            "One such step is clipped by optimizer.gradient_clip; if they go on, lower optimizer.learning_rate.",
        )


def _kl_spike(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    for metric in KL:
        now, usual = _against_window(history, metric, config.window)
        if now > max(config.kl_spike * usual, config.kl_floor):
            yield Alert(
                f"kl_spike/{metric}",
                f"{metric} {now:.3g} nats per token, its median over {config.window} steps was {usual:.3g}",
                f"at most health.kl_spike = {config.kl_spike:g} times the median where above "
                f"health.kl_floor = {config.kl_floor:g}",
                "The policy moved far in one step: lower optimizer.learning_rate, or take fewer minibatches.",
            )


def _entropy_collapse(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    now, first = _against_start(history, ENTROPY, config.window)
    if now < config.entropy_collapse * first:
        yield Alert(
            "entropy_collapse",
            f"entropy {now:.3g} nats per token, over the first {config.window} steps it was {first:.3g}",
            f"at least health.entropy_collapse = {config.entropy_collapse:g} of that",
            "Samples of a problem become equal and teach nothing: stop here, raise the upper clip or the temperature, "
            "or add harder problems.",
        )


def _entropy_growth(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    now, first = _against_start(history, ENTROPY, config.window)
    if now > config.entropy_growth * first:
        yield Alert(
            "entropy_growth",
            f"entropy {now:.3g} nats per token, over the first {config.window} steps it was {first:.3g}",
            f"at most health.entropy_growth = {config.entropy_growth:g} times that",
            "The policy comes apart: lower optimizer.learning_rate or an entropy bonus, and look at policy/sampler_gap "
            "and at samples.",
        )


def _length_without_reward(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    window = config.window
    if len(history) < 2 * window or len({row.get(LIMIT) for row in history[-2 * window :]}) > 1:
        return  # responses that were let become longer do
    before, after = history[-2 * window : -window], history[-window:]
    lengths, rewards = ([_mean(part, name) for part in (before, after)] for name in (LENGTH, REWARD))
    if lengths[1] > config.length_growth * lengths[0] and rewards[1] <= rewards[0]:
        yield Alert(
            "length_without_reward",
            f"responses grew from {lengths[0]:.0f} to {lengths[1]:.0f} tokens between the last two windows of {window} "
            f"steps, reward went from {rewards[0]:.3f} to {rewards[1]:.3f}",
            f"no growth beyond health.length_growth = {config.length_growth:g} without more reward",
            "Look at long samples for repetition; a loss that is a mean over sequences favours long wrong responses.",
        )


def _overfit(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    share = history[-1].get(OVERFIT, math.nan)
    if share > config.overfit_limit:
        yield Alert(
            OVERFIT,
            f"{share:.1%} of the programs that the sampled tests accept fail others",
            f"at most health.overfit_limit = {config.overfit_limit:.1%}",
            "Raise N of task.tests = longest:N, or judge with task.tests = all.",
        )


RULES: tuple[Rule, ...] = (
    _gradient_norm_spike,
    _kl_spike,
    _entropy_collapse,
    _entropy_growth,
    _length_without_reward,
    _overfit,
)
WATCHED = (GRADIENT_NORM, ENTROPY, REWARD, LENGTH, *KL, OVERFIT, LIMIT)
"""The metrics that rules read."""


def _watched(row: Metrics) -> Metrics:
    """What rules read of a line of metrics, where a number that was not finite is None."""
    return {name: row[name] for name in WATCHED if row.get(name) is not None}


def _against_window(history: Sequence[Metrics], name: str, window: int) -> tuple[float, float]:
    """The last value, and the median of the window before; NaN, which breaks no rule, where there is none."""
    before = _values(history[:-1], name)[-window:]
    return history[-1].get(name, math.nan), median(before) if len(before) == window else math.nan


def _against_start(history: Sequence[Metrics], name: str, window: int) -> tuple[float, float]:
    """The last value, and the mean of the first window; NaN as above."""
    first = _values(history[:-1], name)[:window]
    return history[-1].get(name, math.nan), fmean(first) if len(first) == window else math.nan


def _mean(part: Sequence[Metrics], name: str) -> float:
    values = _values(part, name)
    return fmean(values) if values else math.nan


def _values(history: Sequence[Metrics], name: str) -> list[float]:
    return [row[name] for row in history if name in row and math.isfinite(row[name])]


# --- Tests that were not sampled -----------------------------------------------------------------------------------


def overfit_to_sampled_tests(
    groups: Sequence[Group], judge_by_all: Callable[[TaskItem, str], Future[Reward]]
) -> dict[str, float]:
    """How many of the accepted programs hold on all tests of their problem.

    Args:
        groups: of one step, judged by the sampled tests.
        judge_by_all: the reward of a response by all tests; 1 if it passes.

    Returns:
        `overfit_to_sampled_tests`, the share of accepted rollouts that fail a test outside of the sampled ones, and
        `overfit_judged`, how many rollouts that is a share of. Faults of the judge do not count. Without any accepted
        rollout there is no share.
    """
    accepted = [r for group in groups for r in group.rollouts if r.reward.verdict and r.reward.verdict.is_accepted]
    futures = [judge_by_all(rollout.item, rollout.completion.text) for rollout in accepted]
    verdicts = [verdict for future in futures if (verdict := future.result().verdict) and verdict.status is not None]
    failed = sum(not verdict.is_accepted for verdict in verdicts)
    return {"overfit_judged": float(len(verdicts))} | ({OVERFIT: failed / len(verdicts)} if verdicts else {})
