"""Rules over the metrics of a run's steps: which of them a step breaks. Pure; `train.py` takes the actions.

Numbers that are not finite are another matter: the actor ends the run before it overwrites a weight
(`workers/trainer/trained_model.py`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

import yaml

from autoclave.config import HealthConfig
from autoclave.config.health import HealthAction
from autoclave.core import Group, IncompleteError
from autoclave.environments import Grader

Metrics = Mapping[str, float]

GRADIENT_NORM, ENTROPY, APPROX_KL = "policy/gradient_norm", "policy/entropy", "policy/approx_kl"
REWARD, LENGTH = "reward/mean", "response_length/mean"
VARIANCE, STANDARD_ERROR, MASKED = "reward/variance", "reward/standard_error", "masked_share"
CHANGED = "policy/changed_share"
KL = (APPROX_KL, "policy/reference_kl")
"""Metrics of the policy's movement in a step and of its distance from the reference."""
OVERFIT = "overfit_to_sampled_tests"
LIMIT = "length_schedule/max_new_tokens"
RECENT = 3
"""Steps that a fast collapse of the reward takes; a checkpoint of that time may be sick already."""
SIGMAS = 5.0
"""Standard errors that a collapse of the reward must exceed."""
ROUNDING_KL = 1e-12
"""KL that is rounding alone: with one minibatch per step there is nothing else to measure."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a user should look at."""

    name: str
    """That of the rule; after a slash the metric, where a rule reads several."""
    seen: str
    """The numbers."""
    rule: str
    """The setting that they break."""
    fix: str
    """Actions of a rule."""

    def __str__(self) -> str:
        return f"{self.name}: {self.seen}; rule: {self.rule}. {self.fix}"

    def action(self, config: HealthConfig) -> HealthAction:
        return getattr(config.actions, self.name.partition("/")[0])


class RollbackRequest(IncompleteError):
    """An alert of `step` rolls the run back, to a checkpoint of a time that no rule averages over."""

    def __init__(self, step: int, alert: Alert) -> None:
        super().__init__(f"step {step}: rolled back by {alert}")
        self.step, self.alert, self.newest = step, alert, step - RECENT


Rule = Callable[[Sequence[Metrics], HealthConfig], Iterator[Alert]]


def alerts(history: Sequence[Metrics], config: HealthConfig) -> list[Alert]:
    """Return what is wrong at the last step of `history`, the metrics of all steps so far in order."""
    return [alert for rule in RULES for alert in rule(history, config)] if history else []


@dataclass(slots=True)
class Health:
    """The history of a run, and which alerts its last step had: an alert is reported when it begins."""

    config: HealthConfig
    history: list[Metrics] = field(default_factory=list[Metrics])
    _raised: frozenset[str] = frozenset()

    def go_on_from(self, rows: Sequence[Metrics]) -> None:
        """Take `rows`, the metrics of all steps that a resumed run has behind it, as what was seen."""
        self.history = [_watched(row) for row in rows]
        self._raised = frozenset(alert.name for alert in alerts(self.history, self.config))

    def observe(self, metrics: Metrics) -> list[Alert]:
        """Return the alerts that begin with a step of these metrics."""
        self.history.append(_watched(metrics))
        found = alerts(self.history, self.config)
        new = [alert for alert in found if alert.name not in self._raised]
        self._raised = frozenset(alert.name for alert in found)
        return new


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of a metric that holds from the first step on."""

    rule: str
    metric: str
    setting: str
    fix: str
    is_least: bool = False
    """The limit is the least value that is healthy, else the largest."""


BOUNDS = tuple(Bound(**row) for row in yaml.safe_load(Path(__file__).with_name("bounds.yaml").read_text("utf-8")))


def _bounds(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    for bound in BOUNDS:
        now, limit = history[-1].get(bound.metric, math.nan), getattr(config, bound.setting)
        if now < limit if bound.is_least else now > limit:
            shared = sum(bound.rule == other.rule for other in BOUNDS) > 1
            kind = "at least" if bound.is_least else "at most"
            yield Alert(
                f"{bound.rule}/{bound.metric}" if shared else bound.rule,
                f"{bound.metric} {now:.3g}",
                f"{kind} health.{bound.setting} = {limit:g}",
                bound.fix,
            )


def _reward_contradicts_verdict(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    gap = history[-1].get("credit/reward_verdict", math.nan)
    if gap <= 0:
        yield Alert(
            "reward_contradicts_verdict",
            f"accepted responses earn {-gap:.3g} less on average than others"
            if gap
            else "all responses earn the same, accepted or not",
            "accepted responses must earn more (health.actions.reward_contradicts_verdict)",
            "Check the reward function of the task: it must rise with the verdict.",
        )


def _nothing_trained(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    last = history[-config.dead_steps :]
    if len(last) == config.dead_steps and all(map(_is_dead, last)):
        row = last[-1]
        yield Alert(
            "nothing_trained",
            f"nothing to train on for {len(last)} steps: mean reward {row.get(REWARD, math.nan):.3g}, "
            f"{row.get(MASKED, math.nan):.0%} masked, {row.get('truncated_share', math.nan):.0%} truncated",
            f"fewer than health.dead_steps = {config.dead_steps} steps in a row without a gradient or a difference "
            "of rewards",
            "If the run broke, resume from a checkpoint before it did; else take problems that are sometimes solved.",
        )


def _is_dead(row: Metrics) -> bool:
    return not row.get(GRADIENT_NORM) or row.get(VARIANCE, 1.0) < 1e-12 or row.get(MASKED, 0.0) == 1


def _reward_collapse(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    rewards, errors = _values(history, REWARD), _values(history, STANDARD_ERROR)
    if len(rewards) < 2 or not errors or REWARD not in history[-1]:
        return
    error = math.sqrt(fmean(error**2 for error in errors))
    for size in sorted({1, min(RECENT, len(rewards) // 2), min(config.window, len(rewards) // 2)}):
        now, width = fmean(rewards[-size:]), min(max(RECENT, size), len(rewards) - size)
        best = max(fmean(rewards[n : n + width]) for n in range(len(rewards) - size - width + 1))
        chance = SIGMAS * error * math.sqrt(1 / size + 1 / width)
        if now < config.reward_collapse * best and best - now > chance:
            yield Alert(
                "reward_collapse",
                f"mean reward {now:.3g} over {size} step{'s' * (size > 1)}, at best it was {best:.3g}",
                f"at least health.reward_collapse = {config.reward_collapse:g} of the best",
                "Go back to a checkpoint before the fall; lower optimizer.learning_rate, or check loss and rewards.",
            )
            return


def _rate_below_format(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    share = max(_values(history[-RECENT:], CHANGED), default=math.nan)
    if share < config.changed_minimum:
        yield Alert(
            "rate_below_format",
            f"an optimizer step changes {share:.1%} of the weights that have a gradient",
            f"at least health.changed_minimum = {config.changed_minimum:.0%}",
            "The other updates are lost to rounding. Keep the weights in float32: model.dtype=float32 "
            "trainer.mixed_precision=bfloat16; or raise optimizer.learning_rate.",
        )


def _policy_stands_still(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    last = _values(history[-config.window :], APPROX_KL)
    if len(last) == config.window and ROUNDING_KL < max(last) < config.kl_minimum:
        yield Alert(
            "policy_stands_still",
            f"{APPROX_KL} is at most {max(last):.2g} nats per token over {config.window} steps",
            f"at least health.kl_minimum = {config.kl_minimum:g}",
            "The policy hardly changes: raise optimizer.learning_rate.",
        )


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


def _entropy_drift(history: Sequence[Metrics], config: HealthConfig) -> Iterator[Alert]:
    now, first = _against_start(history, ENTROPY, config.window)
    seen = f"entropy {now:.3g} nats per token, over the first {config.window} steps it was {first:.3g}"
    if now < config.entropy_collapse * first:
        yield Alert(
            "entropy_collapse",
            seen,
            f"at least health.entropy_collapse = {config.entropy_collapse:g} of that",
            "Samples of a problem become equal, so that advantages are zero: stop here, raise the upper clip or the "
            "temperature, or add harder problems.",
        )
    if now > config.entropy_growth * first:
        yield Alert(
            "entropy_growth",
            seen,
            f"at most health.entropy_growth = {config.entropy_growth:g} times that",
            "The policy diverges: lower optimizer.learning_rate or an entropy bonus; see policy/log_prob_mismatch "
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
    _bounds,
    _reward_contradicts_verdict,
    _nothing_trained,
    _reward_collapse,
    _rate_below_format,
    _policy_stands_still,
    _gradient_norm_spike,
    _kl_spike,
    _entropy_drift,
    _length_without_reward,
    _overfit,
)
WATCHED = {bound.metric for bound in BOUNDS} | {
    *(GRADIENT_NORM, ENTROPY, REWARD, VARIANCE, STANDARD_ERROR, LENGTH, CHANGED, OVERFIT, LIMIT),
    "credit/reward_verdict",
}
"""The metrics that rules read."""


def _watched(row: Metrics) -> Metrics:
    """Numbers that rules read of a line of metrics; a number that is not finite, None in a file, is left out."""
    return {name: row[name] for name in WATCHED if row.get(name) is not None and math.isfinite(row[name])}


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


def overfit_to_sampled_tests(groups: Sequence[Group], judge_by_all: Grader) -> dict[str, float]:
    """Share of the accepted programs that fail a test of their problem outside of the sampled ones.

    Args:
        groups: of one step, judged by the sampled tests.
        judge_by_all: grades by all tests; 1 if they pass.

    Returns:
        `overfit_to_sampled_tests`, the share of accepted rollouts that fail a test outside of the sampled ones, and
        `overfit_judged`, how many rollouts that is a share of. Faults of the judge do not count. Without any accepted
        rollout there is no share.
    """
    accepted = [r for group in groups for r in group.rollouts if r.reward.verdict and r.reward.verdict.is_accepted]
    futures = [judge_by_all(rollout) for rollout in accepted]
    verdicts = [verdict for future in futures if (verdict := future.result().verdict) and verdict.status is not None]
    failed = sum(not verdict.is_accepted for verdict in verdicts)
    return {"overfit_judged": float(len(verdicts))} | ({OVERFIT: failed / len(verdicts)} if verdicts else {})
