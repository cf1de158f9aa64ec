"""Codeforces rating: points per contest, rank among its participants, the rating that expects this rank.

Points and penalties follow CodeElo and DeepCoder: up to eight attempts at a problem, the first accepted one counts,
each before it costs. Nothing is fetched; standings and the histogram of ratings are arguments.
"""

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
"""Minutes of penalty for the same in rounds without points."""
ATTEMPTS = 8
LOWEST, HIGHEST = -1000.0, 10_000.0
"""Bounds of a rating; the first or last place alone would make it infinite."""
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
    """Return the score in a round with points. `attempts` and `worth` are by problem.

    Raises KeyError: an attempted problem is missing in `worth`.
    """
    return Score(float(sum(points_of(tried, worth[problem]) for problem, tried in attempts.items())))


def score_by_solved(attempts: Mapping[str, Sequence[bool]], limit: int = ATTEMPTS) -> Score:
    """Return the score in a round by ICPC's rules: problems solved, then 10 minutes for each wrong attempt at those.

    A model has no times of attempts, so time itself does not count.
    """
    wrong = [list(tried[:limit]).index(True) for tried in attempts.values() if True in tried[:limit]]
    return Score(float(len(wrong)), -float(LOST_MINUTES * sum(wrong)))


def rank_of(score: Score, others: Sequence[Score]) -> int:
    """Return the rank among others, from 1: behind all better or equal scores, as Codeforces rates ties."""
    return 1 + sum(other >= score for other in others)


def expected_rank(rating: float, others: ArrayLike, expectation: Expectation = "with_self") -> float:
    """Return the expected rank of a rating among participants with the ratings `others`.

        rank = 1 + sum over participants of 1 / (1 + 10^((rating - their rating) / 400))

    Source: Quan et al., "CodeElo", arXiv:2501.01257, section 3.3; DeepCoder's report prints it without the 1.
    """
    ratings = np.asarray(others, dtype=np.float64)
    chances = 1.0 / (1.0 + 10.0 ** (np.clip(rating - ratings, -20_000.0, 20_000.0) / _SCALE))
    return float(chances.sum()) + (1.0 if expectation == "with_self" else 0.0)


def rating_of_rank(rank: float, others: ArrayLike, expectation: Expectation = "with_self") -> float:
    """Return the rating whose expected rank among participants with the ratings `others` is `rank`.

    It falls as the rank number grows, and is clipped to `LOWEST` and `HIGHEST`, as for the first and the last place.

    Raises:
        ValueError: `others` is empty.
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
    """Return the percentage of users with at most this rating. `histogram` has the number of users of each rating.

    Raises ValueError: the histogram is empty.
    """
    total = sum(histogram.values())
    if not total:
        raise ValueError("the histogram of ratings has no users")
    return 100.0 * sum(number for value, number in histogram.items() if value <= rating) / total


@dataclass(frozen=True, slots=True)
class ContestResult:
    """Result of a model in one contest: its score, its rank, the number of participants, and the rating of the rank."""

    contest: str
    score: Score
    rank: int
    participants: int
    rating: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A rated participant of a contest: the score, and the rating before the contest."""

    score: Score
    rating: float


def contest_result(
    contest: str, score: Score, standings: Sequence[Standing], expectation: Expectation = "with_self"
) -> ContestResult:
    """Return the result of a model with this score among rated participants.

    Raises ValueError: `standings` is empty.
    """
    rank = rank_of(score, [each.score for each in standings])
    rating = rating_of_rank(rank, [each.rating for each in standings], expectation)
    return ContestResult(contest, score, rank, len(standings), rating)


def overall(results: Sequence[ContestResult], histogram: Mapping[int, int]) -> dict[str, Any]:
    """Return the rating (mean over contests, which are taken as independent) and its percentile.

    Raises ValueError: `results` is empty.
    """
    if not results:
        raise ValueError("a rating needs at least one contest")
    rating = float(np.mean([result.rating for result in results]))
    return {"contests": len(results), "rating": rating, "percentile": percentile(rating, histogram)}
