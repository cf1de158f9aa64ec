"""A rating as Codeforces means it: points per contest, rank among its participants, the rating that expects this rank.

Points and penalties follow CodeElo and DeepCoder: up to eight attempts at a problem, the first accepted one counts,
each before it costs. Nothing is fetched; standings and the histogram of ratings are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Expectation = Literal["with_self", "as_printed"]
"""Count the participant: rank = 1 + sum (Codeforces, CodeElo), or rank = sum (DeepCoder's report)."""

LOST_POINTS = 50
"""Points that each wrong attempt before the accepted one costs."""
LOST_MINUTES = 10
"""Penalty of the same where problems are counted and not points."""
ATTEMPTS = 8
LOWEST, HIGHEST = -1000.0, 10_000.0
"""Bounds of a rating: who comes first, or last, would have one without end."""
_SCALE = 400.0
_PRECISION = 1e-9


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """Score of a participant in a contest; greater is better.

    Attributes:
        points: sum over problems, or the number of problems solved.
        minus_penalty: minutes, negative; it decides between equal points.
    """

    points: float
    minus_penalty: float = 0.0


def points_of(attempts: Sequence[bool], worth: float, limit: int = ATTEMPTS) -> float:
    """Points for one problem: its worth less 50 for each wrong attempt before the first right one, never below 0.

    Attempts after `limit` do not count.
    """
    tried = list(attempts[:limit])
    return max(0.0, worth - LOST_POINTS * tried.index(True)) if True in tried else 0.0


def score_by_points(attempts: Mapping[str, Sequence[bool]], worth: Mapping[str, float]) -> Score:
    """The score in a round with points. `attempts` and `worth` are by problem.

    Raises:
        KeyError: a problem was attempted that has no worth.
    """
    return Score(float(sum(points_of(tried, worth[problem]) for problem, tried in attempts.items())))


def score_by_solved(attempts: Mapping[str, Sequence[bool]], limit: int = ATTEMPTS) -> Score:
    """The score in a round by ICPC's rules: problems solved, then 10 minutes for each wrong attempt at those.

    When an attempt was made is not known of a model, so time itself does not count.
    """
    wrong = [list(tried[:limit]).index(True) for tried in attempts.values() if True in tried[:limit]]
    return Score(float(len(wrong)), -float(LOST_MINUTES * sum(wrong)))


def rank_of(score: Score, others: Sequence[Score]) -> int:
    """The rank among others, from 1: behind all that are better or equal, as Codeforces rates ties."""
    return 1 + sum(other >= score for other in others)


def ranks(scores: Sequence[Score]) -> NDArray[np.int64]:
    """(participants,) int64: the rank of each, as standings show it; who has the same score has the last place of all
    of them, which is what Codeforces rates.
    """
    keys = np.array([(each.points, each.minus_penalty) for each in scores], dtype=np.float64).reshape(-1, 2)
    order = np.lexsort((-keys[:, 1], -keys[:, 0]))
    found = np.empty(len(scores), dtype=np.int64)
    last = len(order)
    for place in range(len(order) - 1, -1, -1):
        if place + 1 < len(order) and not np.array_equal(keys[order[place]], keys[order[place + 1]]):
            last = place + 1
        found[order[place]] = last
    return found


def expected_rank(rating: float, others: ArrayLike, expectation: Expectation = "with_self") -> float:
    """The rank that a rating leads one to expect among participants of these ratings.

        rank = 1 + sum over participants of 1 / (1 + 10^((rating - their rating) / 400))

    Source: Quan et al., "CodeElo", arXiv:2501.01257, section 3.3; DeepCoder's report prints it without the 1.
    """
    ratings = np.asarray(others, dtype=np.float64)
    chances = 1.0 / (1.0 + 10.0 ** (np.clip(rating - ratings, -20_000.0, 20_000.0) / _SCALE))
    return float(chances.sum()) + (1.0 if expectation == "with_self" else 0.0)


def rating_of_rank(rank: float, others: ArrayLike, expectation: Expectation = "with_self") -> float:
    """The rating that expects this rank among participants of these ratings. It falls as the rank number grows.

    No rating expects the first place, or one behind the last: these get `HIGHEST` and `LOWEST`, as does whatever lies
    beyond them.

    Raises:
        ValueError: nobody else took part, so that any rating would do.
    """
    ratings = np.asarray(others, dtype=np.float64)
    if not ratings.size:
        raise ValueError("a rating needs other participants")
    low, high = LOWEST, HIGHEST
    if expected_rank(low, ratings, expectation) <= rank:
        return low
    if expected_rank(high, ratings, expectation) >= rank:
        return high
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if expected_rank(middle, ratings, expectation) > rank:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def percentile(rating: float, histogram: Mapping[int, int]) -> float:
    """Percent of users whose rating is at most this one. `histogram` has the number of users of each rating.

    Raises:
        ValueError: the histogram is empty.
    """
    total = sum(histogram.values())
    if not total:
        raise ValueError("the histogram of ratings has no users")
    return 100.0 * sum(number for value, number in histogram.items() if value <= rating) / total


@dataclass(frozen=True, slots=True)
class ContestResult:
    """Result of a model in one contest: its score, rank among so many participants, and the rating of that."""

    contest: str
    score: Score
    rank: int
    participants: int
    rating: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A rated participant of a contest: what he had, and his rating before it."""

    score: Score
    rating: float


def contest_result(
    contest: str, score: Score, standings: Sequence[Standing], expectation: Expectation = "with_self"
) -> ContestResult:
    """The result of a model that had this score beside rated participants.

    Raises:
        ValueError: there are none.
    """
    rank = rank_of(score, [each.score for each in standings])
    rating = rating_of_rank(rank, [each.rating for each in standings], expectation)
    return ContestResult(contest, score, rank, len(standings), rating)


def overall(results: Sequence[ContestResult], histogram: Mapping[int, int]) -> dict[str, Any]:
    """Rating (mean over contests, which are taken as independent) and its percentile.

    Raises:
        ValueError: there is no contest.
    """
    if not results:
        raise ValueError("a rating needs at least one contest")
    rating = float(np.mean([result.rating for result in results]))
    return {"contests": len(results), "rating": rating, "percentile": percentile(rating, histogram)}
