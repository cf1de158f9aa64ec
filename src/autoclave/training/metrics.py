"""The numbers of one iteration, from its collection and what was learnt. Pure."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from autoclave.algorithms import is_uniform
from autoclave.core import Group, Problem, Rollout, TaskItem
from autoclave.core.timeline import Role, Timeline
from autoclave.rollout import Collection, CollectionTimes
from autoclave.training.alignment.metrics import alignment_metrics, without_alignment_samples
from autoclave.training.learned import Learned
from autoclave.training.request_ledger import RequestLedger

CORRELATED = 16
"""Rollouts with an advantage, from which on its correlation with the reward is more than chance."""


def iteration_metrics(times: CollectionTimes, learned: Learned) -> dict[str, float]:
    """Rewards, statuses, lengths and shares of an iteration's rollouts, and the metrics of its updates.

    Where alignment samples are asked too, what is said of responses is said of those to the other prompts; see
    `alignment_metrics`.
    """
    groups = without_alignment_samples(learned.groups)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward.value for rollout in rollouts if rollout.reward.value is not None]
    tokens = [rollout.num_sampled for rollout in rollouts]
    sampled = sum(rollout.num_sampled for group in learned.groups for rollout in group.rollouts)
    statuses = Counter(rollout.reward.reason for rollout in rollouts)
    return {
        **_reward_parts(rollouts),
        "reward/mean": float(np.mean(rewards)) if rewards else float("nan"),
        "reward/variance": float(np.var(rewards)) if rewards else float("nan"),
        **_standard_error(groups),
        "accepted_share": _share([r.reward.reason == "accepted" for r in rollouts]),
        "response_length/mean": float(np.mean(tokens)) if tokens else float("nan"),
        "turns/mean": float(np.mean([len(rollout.turns) for rollout in rollouts])) if rollouts else float("nan"),
        "truncated_share": _share([rollout.is_cut for rollout in rollouts]),
        "no_verdict_share": _share([r.reward.value is None for r in rollouts]),
        "masked_share": _share([not r.is_trained for r in rollouts]),
        "groups/zero_variance_share": _share([is_uniform(group.rollouts) for group in groups]),
        "groups/resampled": float(times.resamples),
        **_counts_by_source(learned.groups),
        **{f"status/{status}": count / len(rollouts) for status, count in sorted(statuses.items())},
        **_episodes(rollouts),
        **_credit(learned),
        **{name if "/" in name else f"policy/{name}": value for name, value in learned.metrics.items()},
        "time/sample_s": times.sample_s,
        "time/judge_tail_s": times.judge_tail_s,
        **alignment_metrics(learned.groups),
        "sampled_tokens": sampled,
        "sampled_tokens_per_s": sampled / times.sample_s if times.sample_s else 0.0,
    }


def _episodes(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Metrics of the time between turns, where rollouts may have several."""
    if all(rollout.most_turns == 1 for rollout in rollouts):
        return {}
    observed = sum(len(turn.prompt_tokens) for rollout in rollouts for turn in rollout.turns[1:])
    limits = Counter(rollout.ended_by for rollout in rollouts if rollout.ended_by)
    return {
        "tools/errors": float(np.mean([rollout.tool_errors for rollout in rollouts])),
        "tools/seconds": float(np.mean([rollout.tools_s for rollout in rollouts])),
        "tokens/observed_per_sampled": observed / max(1, sum(rollout.num_sampled for rollout in rollouts)),
        **{f"ended_by/{limit}": count / len(rollouts) for limit, count in sorted(limits.items())},
    }


def _reward_parts(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Means of the parts of rewards, but for the share of tests, over the rollouts that have them."""
    found = defaultdict[str, list[float]](list)
    for name, value in (each for rollout in rollouts for each in rollout.reward.parts.items()):
        found[name].append(value)
    return {f"reward/{name}": float(np.mean(values)) for name, values in found.items() if name != "tests_passed"}


def _standard_error(groups: Sequence[Group]) -> dict[str, float]:
    """Standard error of the mean reward over problems; none for fewer than eight, whose spread says little."""
    rewards = [[r.reward.value for r in group.rollouts if r.reward.value is not None] for group in groups]
    means = [float(np.mean(values)) for values in rewards if values]
    return {"reward/standard_error": float(np.std(means, ddof=1) / np.sqrt(len(means)))} if len(means) >= 8 else {}


def _credit(learned: Learned) -> dict[str, float]:
    """Agreement of rewards with verdicts, and of advantages with rewards; each only where there is a difference."""
    rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
    judged = [(r.reward.value, r.reward.verdict.is_accepted) for r in rollouts if r.reward.verdict]
    by_verdict = [
        [value for value, accepted in judged if accepted is which and value is not None] for which in (True, False)
    ]
    metrics = (
        {"credit/reward_verdict": float(np.mean(by_verdict[0]) - np.mean(by_verdict[1]))} if all(by_verdict) else {}
    )
    pairs = np.array([(e.reward, e.advantage) for e in learned.ledger if e.reward is not None and e.advantage], float)
    if len(pairs) >= CORRELATED and np.ptp(pairs[:, 0]) and np.ptp(pairs[:, 1]):
        metrics["credit/advantage_reward"] = float(np.corrcoef(pairs.T)[0, 1])
    return metrics


def _share(flags: list[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def source_of(item: TaskItem) -> str:
    """Group that metrics are counted by: the source that a problem names, else the task."""
    is_named = isinstance(item.payload, Problem) and item.payload.source
    return item.payload.source if is_named else item.task


def _counts_by_source(groups: Sequence[Group]) -> dict[str, float]:
    """Rollouts by source, those that are masked by reason, and groups of which too few or only equal rewards train."""
    counts: Counter[str] = Counter()
    for group in groups:
        source = source_of(group.item)
        trained = sum(rollout.is_trained for rollout in group.rollouts)
        counts[f"rollouts/{source}"] += len(group.rollouts)
        counts.update(f"masked/{rollout.mask_reason}/{source}" for rollout in group.rollouts if rollout.mask_reason)
        counts[f"groups/single_trained/{source}"] += trained == 1
        counts[f"groups/zero_variance/{source}"] += is_uniform(group.rollouts)
    return {name: float(count) for name, count in sorted(counts.items())}


def describe_iteration(metrics: Mapping[str, float]) -> str:
    """The few numbers beside a progress bar."""
    return (
        f"reward {metrics['reward/mean']:.2f}  length {metrics['response_length/mean']:.0f}  "
        f"entropy {metrics.get('policy/entropy', float('nan')):.3f}"
    )


class ThreeStages(Protocol):
    """The stages that a schedule orders; see `Stages`."""

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection: ...

    def learn(self, groups: Sequence[Group]) -> Learned: ...

    def publish(self, version: int) -> Mapping[str, float]: ...


@dataclass(slots=True)
class Stopwatch:
    """Seconds by name, added up."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _started: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def time(self, name: str) -> Generator[None]:
        """Add the seconds of the block to `name`."""
        self._started[name] = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - self._started.pop(name)

    @property
    def running(self) -> list[str]:
        """The blocks that have not ended, outermost first."""
        return list(self._started)

    def so_far(self) -> dict[str, float]:
        """All seconds, those of blocks that have not ended included."""
        now = time.monotonic()
        names = {*self.seconds, *self._started}
        return {name: self.seconds.get(name, 0.0) + now - self._started.get(name, now) for name in sorted(names)}

    def take(self) -> dict[str, float]:
        """All seconds so far, which start again from 0."""
        taken = dict(self.seconds)
        self.seconds.clear()
        return taken


@dataclass(frozen=True, slots=True)
class RunStages:
    """Stages of a run: their requests are accounted for, `learn` and `publish` timed and recorded on a timeline."""

    stages: ThreeStages
    ledger: RequestLedger | None = None
    before_learning: Callable[[Sequence[Group]], None] = lambda groups: None
    """Called with the groups of each `learn`, before it."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    timeline: Timeline = field(default_factory=Timeline)

    def collect(
        self, items: Sequence[TaskItem], iteration: int, known: Mapping[int, Group | None] | None = None
    ) -> Collection:
        batch = self.stages.collect(items, iteration, known)
        if self.ledger:
            self.ledger.watch(batch)
        return batch

    def learn(self, groups: Sequence[Group]) -> Learned:
        rollouts = sum(len(group.rollouts) for group in groups)
        with self.stopwatch.time("learn"), self.timeline.time(Role.TRAINER, "learn", rollouts=rollouts):
            self.before_learning(groups)
            learned = self.stages.learn(groups)
            if self.ledger:
                self.ledger.learn(learned)
            return learned

    def publish(self, version: int) -> Mapping[str, float]:
        with self.stopwatch.time("publish"), self.timeline.time(Role.PUBLISH, "publish", version=version):
            return self.stages.publish(version)
