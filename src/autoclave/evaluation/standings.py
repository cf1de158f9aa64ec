"""Standings of Codeforces' contests from files, and the rating of a model among their participants.

Rating: points per contest, rank among its participants, the rating that expects this rank. Points and penalties follow
CodeElo and DeepCoder: up to eight attempts at a problem, the first accepted one counts, each before it costs.

A folder has, for each contest, what Codeforces' API answers to `contest.standings` and `contest.ratingChanges`, as
`<contest>.standings.json` and `<contest>.ratingChanges.json` (command: docs/how-to/evaluation.md). A file of rounds has
a line per contest: `contest`, `problems` (index -> points, left out in rounds by problems solved) and `rows` with
`points`, `penalty` and `old_rating` of each rated participant.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoclave.core import DataError, InputError
from autoclave.core.compressed import open_plain
from autoclave.core.files import existing_file, read_jsonl
from autoclave.evaluation.benchmark_result import BenchmarkResult

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

    Raises ValueError: `others` is empty.
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


_PROBLEM = re.compile(r"(?:.*/)?(\d+)[/_]?([A-Z]\d{0,2})")
_MOST_PROBLEMS = 50
"""No contest has more; a participant with more points did not get them by the number of problems."""
_STANDINGS, _CHANGES = ".standings.json", ".ratingChanges.json"


@dataclass(frozen=True, slots=True)
class Contest:
    """A contest: points of its problems by index (empty in rounds by problems solved), and its rated participants."""

    id: str
    worth: Mapping[str, float]
    standings: Sequence[Standing]


def read_contests(path: Path) -> dict[str, Contest]:
    """Return the contests of a folder or of a file of rounds, by their number.

    Raises InputError: `path` holds no contest. DataError: a file is not an answer of the API.
    """
    if path.is_dir():
        files = sorted(path.glob(f"*{_STANDINGS}"))
        contests = [_of_api(file) for file in files]
    else:
        contests = [_of_round(where, line) for where, line in read_jsonl(path, "rounds")]
    if not contests:
        raise InputError(
            f"{path}: has no <contest>{_STANDINGS}; docs/how-to/evaluation.md has the command that fetches them"
        )
    return {contest.id: contest for contest in contests}


def read_histogram(path: Path) -> dict[int, int]:
    """Return the number of users of each rating, from a JSON object.

    Raises InputError: the file does not exist. DataError: it does not hold such an object.
    """
    try:
        given: Any = json.loads(_text(path, "histogram"))
        return {int(rating): int(number) for rating, number in given.items()}
    except (ValueError, AttributeError, TypeError):
        raise DataError(f"{path}: must be an object from ratings to numbers of users") from None


def read_problem_ids(path: Path) -> list[str]:
    """Return the contest and index of each problem, from a JSON list of such ids, in the order of the set.

    Raises InputError: the file does not exist. DataError: it does not hold such a list.
    """
    try:
        given: Any = json.loads(_text(path, "problem ids"))
    except ValueError:
        given = None
    if not isinstance(given, list) or not all(isinstance(id, str) and _PROBLEM.fullmatch(id) for id in given):
        raise DataError(f"{path}: must be a list of ids such as 1971A")
    return cast("list[str]", given)


def contest_of(problem_id: str) -> tuple[str, str] | None:
    """Return contest and index of an id such as `codeforces/1971/A`, `1971A` or `1971_A`; None for another id."""
    found = _PROBLEM.fullmatch(problem_id)
    return (found[1], found[2]) if found else None


def rating_of(
    result: BenchmarkResult,
    contests: Mapping[str, Contest],
    histogram: Mapping[int, int],
    *,
    attempts: int,
    expectation: Expectation = "with_self",
) -> dict[str, Any]:
    """Return the rating of a model among the participants of each contest, and their mean, as JSON data.

    The first `attempts` responses to a problem that have a verdict are its attempts, in order. Contests without
    standings, and problems whose ids name no contest, are listed and do not count. Problems of a contest that are not
    in the set count as not solved; the result has both numbers of problems.

    Raises InputError: no problem is of a contest with standings, or a problem of a round with points has no points.
    """
    tried: dict[str, dict[str, list[bool]]] = {}
    without_contest: list[str] = []
    for problem in result.problems:
        place = contest_of(problem.id)
        if place:
            first = result.by_problem[problem.id][:attempts]
            tried.setdefault(place[0], {})[place[1]] = [each.is_right for each in first if each.score is not None]
        else:
            without_contest.append(problem.id)
    known = [id for id in tried if id in contests]
    if not known:
        raise InputError(
            f"rating: none of the contests {', '.join(list(tried)[:5]) or '(no problem id has one)'} has standings"
        )
    results = [contest_result(id, _score(contests[id], tried[id]), contests[id].standings, expectation) for id in known]
    per_contest = [
        {**asdict(each), "problems_asked": len(tried[id]), "problems_in_contest": len(contests[id].worth) or None}
        for id, each in zip(known, results, strict=True)
    ]
    return {
        **overall(results, histogram),
        "expectation": expectation,
        "without_standings": sorted(set(tried) - set(known)),
        "without_contest": without_contest,
        "per_contest": per_contest,
    }


def _score(contest: Contest, tried: Mapping[str, Sequence[bool]]) -> Score:
    if not contest.worth:
        most = max(each.score.points for each in contest.standings)
        if most > _MOST_PROBLEMS:
            raise InputError(
                f"contest {contest.id}: participants have up to {most:g} points, so it is a round with points, "
                'but its standings have no points of problems. Fix: add `problems`, such as {"A": 500}'
            )
        return score_by_solved(tried)
    missing = [index for index in tried if index not in contest.worth]
    if missing:
        raise InputError(f"contest {contest.id}: its standings have no points for problem {missing[0]}")
    return score_by_points(tried, contest.worth)


def _of_api(path: Path) -> Contest:
    id = path.name.removesuffix(_STANDINGS)
    changes = path.with_name(f"{id}{_CHANGES}")
    standings, rated = _answer(path), _answer(changes)
    try:
        ratings = {str(change["handle"]): float(change["oldRating"]) for change in rated}
        worth = {str(each["index"]): float(each["points"]) for each in standings["problems"] if "points" in each}
        rows = [row for row in standings["rows"] if row["party"].get("participantType", "CONTESTANT") == "CONTESTANT"]
        participants = [
            Standing(Score(float(row["points"]), -float(row["penalty"])), ratings[handle])
            for row in rows
            for handle in [str(row["party"]["members"][0]["handle"])]
            if handle in ratings
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{path}: is not an answer of contest.standings ({type(error).__name__}: {error})") from None
    return _with_participants(Contest(id, worth, participants), str(path))


def _of_round(where: str, line: Mapping[str, Any]) -> Contest:
    try:
        participants = [
            Standing(Score(float(row["points"]), -float(row["penalty"])), float(row["old_rating"]))
            for row in line["rows"]
        ]
        worth = {str(index): float(points) for index, points in (line.get("problems") or {}).items()}
        return _with_participants(Contest(str(line["contest"]), worth, participants), where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{where}: must have contest, and rows with points, penalty and old_rating ({error})") from None


def _with_participants(contest: Contest, where: str) -> Contest:
    if not contest.standings:
        raise DataError(f"{where}: no rated participant is in the standings of contest {contest.id}")
    return contest


def _answer(path: Path) -> Any:
    try:
        answer: Any = json.loads(_text(path, "answer of the API"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error})") from None
    if not isinstance(answer, dict) or answer.get("status", "OK") != "OK" or "result" not in answer:
        comment = answer.get("comment", "") if isinstance(answer, dict) else ""
        raise DataError(f"{path}: the API did not answer OK {comment}".rstrip())
    return answer["result"]


def _text(path: Path, what: str) -> bytes:
    with open_plain(existing_file(path, what)) as file:
        return file.read()
