"""Token times, from spans of requests: a start, then t(n) = base + growth n a token with n requests running.

A request of T tokens takes start + T (base + growth m), where m is how many requests ran, itself counted: the mean over
its tokens. m follows from the spans and t, t from m by least squares; a few rounds settle both. The start, in which the
prompt is computed, is then counted in tokens, since a simulated device knows nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from autoclave.core.timeline import Span
from autoclave.planning.measured import TokenTime, fit_token_time

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

    token: TokenTime
    start_tokens: float
    """The start of a request, in tokens."""
    tokens_per_s: Mapping[float, float]
    """By requests running."""


def sampling_times(requests: Sequence[Span], others: Sequence[Span] = ()) -> SamplingTimes:
    """The times that `requests` show; `others` ran beside them, and are not measured themselves.

    Raises:
        ConfigError: no request has tokens and took any time.
    """
    lanes: defaultdict[str, tuple[list[Span], list[Span]]] = defaultdict(lambda: ([], []))
    for number, spans in enumerate((requests, others)):
        for span in spans:
            if num_tokens(span) and span.end > span.start:
                lanes[span.lane][number].append(span)
    parts = [_Lane(own, beside) for own, beside in lanes.values() if own]
    if not parts:
        return SamplingTimes(fit_token_time({}), 0.0, {})
    seconds = np.concatenate([lane.ends - lane.starts for lane in parts])
    tokens = np.concatenate([lane.tokens for lane in parts])
    start, base, growth = 0.0, 1.0, 0.0
    beside = np.zeros_like(tokens)
    for _ in range(ROUNDS):
        beside = np.concatenate([lane.running_beside(base, growth) for lane in parts])
        start, base, growth = fit_times(seconds, tokens, beside)
    start /= float(((base + growth * beside) * tokens).sum() / tokens.sum())
    rates = _binned(beside, seconds, tokens + start)
    errors = [abs((base + growth * running) * rate / running - 1) for running, rate in rates.items()]
    return SamplingTimes(TokenTime(1e3 * base, growth / base, max(errors)), start, rates)


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
