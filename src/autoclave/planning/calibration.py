"""Rates from the timeline of a run: token times by requests running, rewards, learning, publishes, lengths.

Pure arithmetic on spans; nothing here runs anything.

    token time   see `sampling_times`
    reward       its span, less the time for which all slots of the judge were taken by rewards requested before
    learning     seconds of updates over response tokens, times the trainer's devices
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import combinations
from statistics import fmean

import numpy as np

from autoclave.core import InputError
from autoclave.core.rollout import IntArray
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import Split


@dataclass(frozen=True, slots=True)
class Rates:
    """Measurements of a calibration; the times are those of `Profile`, of one device."""

    token_ms: float
    batch_slope: float
    slots: int
    judge_slots: int
    train_ms_per_token: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements from the timeline of a run."""

    split: Split
    sampling: "SamplingTimes"
    rates: Rates
    tokens: IntArray
    """(groups, samples) of each response; a request has as many tokens more as its start takes."""
    reward_s: np.ndarray
    """(groups, samples) seconds of its reward."""
    groups: int
    """Of an iteration, on average."""
    iteration_s: float
    """Seconds of an iteration, on average."""

    def profile(self, minibatches: int, *, iterations: int = 8) -> Profile:
        """The work of iterations like those seen: groups drawn with replacement, each with all its samples."""
        rng, rates = np.random.default_rng(0), self.rates

        def drawn() -> tuple[Work, ...]:
            return tuple(
                Work(group, int(tokens), float(seconds))
                for group, chosen in enumerate(rng.integers(len(self.tokens), size=self.groups))
                for tokens, seconds in zip(self.tokens[chosen], self.reward_s[chosen], strict=True)
            )

        return Profile(
            profile="measured",
            devices=self.split.samplers + (0 if self.split.is_shared else self.split.trainers),
            slots=rates.slots,
            token_ms=rates.token_ms,
            batch_slope=rates.batch_slope,
            judge_slots=rates.judge_slots,
            train_ms_per_token=rates.train_ms_per_token,
            mini_batches=min(minibatches, self.groups),
            sync_s=rates.sync_s,
            iterations=tuple(drawn() for _ in range(iterations)),
        )

    def token_ms_beside(self, running: float) -> float:
        """Milliseconds of a token with so many requests running; a start is divided over the tokens of its request."""
        sampled = float(self.tokens.mean())
        at_work = self.rates.token_ms * (1 + self.rates.batch_slope * running)
        return at_work * sampled / (sampled - round(self.sampling.start_tokens))

    def slowdown(self, together: "Calibration") -> float:
        """Factor by which sampling and training take longer in `together`, where both go on at once; 1 at least."""
        running = max(together.sampling.tokens_per_s)
        token = together.token_ms_beside(running) / self.token_ms_beside(running)
        training = together.rates.train_ms_per_token / (self.rates.train_ms_per_token or 1.0)
        return max(1.0, (token + training) / 2)


def calibrate(
    timelines: Iterable[StepTimeline], split: Split, *, slots: int, judge_slots: int, group_size: int
) -> Calibration:
    """Rates from the steps of a run. The first one is left out where there are others: libraries warm up in it.

    Args:
        slots: requests that a sampler device runs at once.

    Raises:
        InputError: no step has requests of whole groups and an update.
    """
    steps = [timeline for timeline in timelines if timeline.step]
    all_steps = [by_role(timeline) for timeline in steps]
    found = all_steps[1:] or all_steps
    judged = sorted((span for spans in all_steps for span in spans[Role.JUDGE]), key=lambda span: span.start)
    rewards: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for span, seconds in zip(judged, reward_seconds(judged, judge_slots), strict=True):
        rewards[span.step, span.name].append(seconds)
    groups = [group for spans in found for group in whole_groups(spans[Role.SAMPLER], rewards, group_size)]
    if not groups or not any(spans[Role.TRAINER] for spans in found):
        raise InputError(
            "calibration: no step has requests of whole groups and an update; run more iterations of the recipe first"
        )
    warm_up = [span for spans in all_steps[: len(all_steps) - len(found)] for span in spans[Role.SAMPLER]]
    sampling = sampling_times([span for spans in found for span in spans[Role.SAMPLER]], warm_up)
    start = round(sampling.start_tokens)
    return Calibration(
        split,
        sampling,
        Rates(
            token_ms=sampling.token_ms,
            batch_slope=sampling.batch_slope,
            slots=slots,
            judge_slots=judge_slots,
            train_ms_per_token=train_ms(found, split.trainers, start),
            sync_s=fmean([_seconds(span) for spans in found for span in spans[Role.PUBLISH]] or [0.0]),
        ),
        tokens=np.array([[num_tokens(request) + start for request, _ in group] for group in groups], dtype=np.int64),
        reward_s=np.array([[reward for _, reward in group] for group in groups]),
        groups=max(1, round(len(groups) / len(found))),
        iteration_s=fmean(timeline.end - timeline.start for timeline in steps[1:] or steps),
    )


def by_role(timeline: StepTimeline) -> dict[Role, list[Span]]:
    """The spans that belong to a step, by their start."""
    found: dict[Role, list[Span]] = {role: [] for role in Role}
    for span in sorted(timeline.spans, key=lambda span: span.start):
        if span.step == timeline.step:
            found[span.role].append(span)
    return found


def whole_groups(
    requests: Sequence[Span], rewards: Mapping[tuple[int, str], Sequence[float]], size: int
) -> list[list[tuple[Span, float]]]:
    """Each group of requests of a step, with the seconds of their rewards. What is over is left out.

    Of an item that was asked again there are several groups, one after the other.

    Args:
        requests: those of a step, by their start.
        rewards: seconds of rewards by step and name, in their order.
        size: requests of a group.
    """
    items: defaultdict[str, list[tuple[Span, float]]] = defaultdict(list)
    seen: Counter[str] = Counter()
    for span in requests:
        seconds, number = rewards.get((span.step, span.name), ()), seen[span.name]
        seen[span.name] += 1
        if number < len(seconds) and num_tokens(span):
            items[span.name.rpartition("#")[0]].append((span, seconds[number]))
    starts = ((found, start) for found in items.values() for start in range(0, len(found) - size + 1, size))
    return [found[start : start + size] for found, start in starts]


def reward_seconds(spans: Sequence[Span], slots: int) -> list[float]:
    """Seconds that each reward took on its slot; `spans` are by their start, and begin when a reward is asked for."""
    free_at = [float("-inf")] * slots
    heapify(free_at)
    taken: list[float] = []
    for span in spans:
        taken.append(max(0.0, span.end - max(span.start, free_at[0])))
        heapreplace(free_at, max(span.end, free_at[0]))
    return taken


def train_ms(steps: Sequence[Mapping[Role, Sequence[Span]]], devices: int, start: int = 0) -> float:
    """Milliseconds of one device that learning from a response token takes; a response has `start` tokens more."""
    tokens = sum(num_tokens(span) + start for spans in steps for span in spans[Role.SAMPLER])
    return 1e3 * devices * sum(_seconds(span) for spans in steps for span in spans[Role.TRAINER]) / max(1, tokens)


def _seconds(span: Span) -> float:
    return span.end - span.start


ROUNDS = 5
"""Of fitting times and numbers of requests to each other; what is left changes the fourth digit."""

BINS = 8
"""Numbers of requests running that token times are measured at, at most."""

LEAST_BASE = 1e-3
"""Of the time of a token, where it seems to be in proportion to the requests running."""

MOST_START = 0.8
"""Share of the time of requests that their starts can have; tokens that seem to take none say that nothing is known."""


@dataclass(frozen=True, slots=True)
class SamplingTimes:
    """Time that sampling takes on one device."""

    token_ms: float
    batch_slope: float
    """A token takes token_ms (1 + batch_slope n) with n requests running."""
    start_tokens: float
    """The start of a request, in tokens."""
    tokens_per_s: Mapping[float, float]
    """By requests running."""


def sampling_times(requests: Sequence[Span], others: Sequence[Span] = ()) -> SamplingTimes:
    """The times that `requests` show; `others` ran beside them, and are not measured themselves.

    Raises InputError: no request has tokens and took any time.
    """
    lanes: defaultdict[str, tuple[list[Span], list[Span]]] = defaultdict(lambda: ([], []))
    for number, spans in enumerate((requests, others)):
        for span in spans:
            if num_tokens(span) and span.end > span.start:
                lanes[span.lane][number].append(span)
    parts = [_Lane(own, beside) for own, beside in lanes.values() if own]
    if not parts:
        raise InputError("calibration: no request has tokens and took any time; run more iterations of the recipe")
    seconds = np.concatenate([lane.ends - lane.starts for lane in parts])
    tokens = np.concatenate([lane.tokens for lane in parts])
    start, base, growth = 0.0, 1.0, 0.0
    beside = np.zeros_like(tokens)
    for _ in range(ROUNDS):
        beside = np.concatenate([lane.running_beside(base, growth) for lane in parts])
        start, base, growth = fit_times(seconds, tokens, beside)
    start /= float(((base + growth * beside) * tokens).sum() / tokens.sum())
    return SamplingTimes(1e3 * base, growth / base, start, _binned(beside, seconds, tokens + start))


def fit_times(seconds: np.ndarray, tokens: np.ndarray, beside: np.ndarray) -> tuple[float, float, float]:
    """Start, base and growth by least squares of `seconds`; all arrays are (N,). None is negative, and base is not 0.

    Of all choices of which are 0, the one that fits best; of those that fit equally well, one with most of them 0.
    """
    design = np.stack([np.ones_like(tokens), tokens, tokens * beside], axis=1)
    best, least = np.array([0.0, seconds.sum() / tokens.sum(), 0.0]), float("inf")
    for size in (1, 2, 3):
        for columns in combinations(range(3), size):
            values, _, rank, _ = np.linalg.lstsq(design[:, columns], seconds, rcond=None)
            error = float(np.square(design[:, columns] @ values - seconds).sum())
            found = np.zeros(3)
            found[list(columns)] = values
            is_possible = rank == size and (values >= 0).all() and found[0] <= MOST_START * float(seconds.mean())
            if is_possible and error < least - 1e-9 * float(np.square(seconds).sum()):
                least, best = error, found
    start, base, growth = map(float, best)
    return start, max(base, LEAST_BASE * growth * float(beside.mean())), growth


class _Lane:
    """The requests of one device as arrays (N,), and how many ran between any two moments at which that changed."""

    def __init__(self, spans: Sequence[Span], others: Sequence[Span]) -> None:
        starts = np.array([span.start for span in (*spans, *others)])
        ends = np.array([span.end for span in (*spans, *others)])
        self.starts, self.ends = starts[: len(spans)], ends[: len(spans)]
        self.tokens = np.array([num_tokens(span) for span in spans], dtype=np.float64)
        self._moments = np.unique(np.concatenate([starts, ends]))
        changes = np.zeros(len(self._moments))
        np.add.at(changes, np.searchsorted(self._moments, starts), 1.0)
        np.add.at(changes, np.searchsorted(self._moments, ends), -1.0)
        self._running = np.cumsum(changes)[:-1]

    def running_beside(self, base: float, growth: float) -> np.ndarray:
        """(N,) how many requests ran with each, itself counted: the mean over its tokens, if these take such times."""
        tokens = np.diff(self._moments) / (base + growth * self._running)
        done = np.concatenate([[0.0], np.cumsum(tokens)])
        weighted = np.concatenate([[0.0], np.cumsum(tokens * self._running)])
        low, high = np.searchsorted(self._moments, self.starts), np.searchsorted(self._moments, self.ends)
        return (weighted[high] - weighted[low]) / (done[high] - done[low])


def _binned(beside: np.ndarray, seconds: np.ndarray, tokens: np.ndarray) -> dict[float, float]:
    """Equally many requests in each bin, in order of how many ran beside them."""
    found: defaultdict[float, list[np.ndarray]] = defaultdict(list)
    for part in np.array_split(np.argsort(beside, kind="stable"), BINS):
        if len(part):
            found[round(float(np.average(beside[part], weights=tokens[part])), 3)].append(part)
    bins = {running: np.concatenate(parts) for running, parts in found.items()}
    return {running: running * float(tokens[part].sum() / seconds[part].sum()) for running, part in bins.items()}


def num_tokens(span: Span) -> int:
    """Tokens of the response of a request; 0 if its span does not say."""
    tokens = span.attributes.get("tokens")
    return tokens if isinstance(tokens, int) else 0
