"""Ratings from files of standings; every figure of the small contest is computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.core import DataError, InputError
from autoclave.evaluation.benchmark_result import BenchmarkResult, GradedResponse
from autoclave.evaluation.questions import QuestionInfo
from autoclave.evaluation.standings import (
    contest_of,
    expected_rank,
    rating_of,
    read_contests,
    read_histogram,
    read_problem_ids,
)

HISTOGRAM = {1000: 50, 1500: 30, 2000: 20}
PEOPLE = (("ann", 1500.0, 0, 2000), ("bob", 900.0, 0, 1500), ("cid", 400.0, 0, 1200), ("new", 2000.0, 0, None))
"""Handle, points, penalty, rating before; who has none was not rated."""


def answer(result) -> str:
    return json.dumps({"status": "OK", "result": result})


def write_contest(folder: Path, id: str = "1971", worth=(("A", 500.0), ("B", 1000.0)), people=PEOPLE) -> None:
    rows = [
        {
            "party": {"members": [{"handle": name}], "participantType": "CONTESTANT"},
            "points": points,
            "penalty": penalty,
        }
        for name, points, penalty, _ in people
    ]
    rows.append({"party": {"members": [{"handle": "ann"}], "participantType": "PRACTICE"}, "points": 9.0, "penalty": 0})
    problems = [{"index": index, **({"points": points} if points else {})} for index, points in worth]
    (folder / f"{id}.standings.json").write_text(answer({"problems": problems, "rows": rows}))
    changes = [{"handle": name, "oldRating": rating} for name, _, _, rating in people if rating is not None]
    (folder / f"{id}.ratingChanges.json").write_text(answer(changes))


def result_of(attempts: dict[str, list[bool | None]]) -> BenchmarkResult:
    """What a model with these attempts has; None is one without a verdict."""
    samples = [
        GradedResponse(id, place, "", None if right is None else float(right), "")
        for id, each in attempts.items()
        for place, right in enumerate(each)
    ]
    return BenchmarkResult("codeforces", "m", tuple(QuestionInfo(id) for id in attempts), tuple(samples))


def rated(folder: Path, attempts: dict[str, list[bool | None]], **more):
    return rating_of(result_of(attempts), read_contests(folder), HISTOGRAM, attempts=8, **more)


def test_a_contest_by_hand(tmp_path):
    write_contest(tmp_path)
    # A: third attempt, 500 - 2 * 50 = 400. B: never. Equal to cid, so behind him: rank 4 of ann, bob, cid.
    found = rated(tmp_path, {"codeforces/1971/A": [False, False, True], "codeforces/1971/B": [False] * 8})
    (contest,) = found["per_contest"]
    assert contest["score"]["points"] == 400
    assert (contest["rank"], contest["participants"]) == (4, 3)
    assert contest["rating"] == -1000  # behind all: no rating expects that
    # B at once: 1000, behind ann alone: rank 2 = 1 + 1, and the three chances to be beaten sum to 1.
    found = rated(tmp_path, {"codeforces/1971/A": [], "codeforces/1971/B": [True]})
    (contest,) = found["per_contest"]
    assert contest["rank"] == 2
    assert expected_rank(contest["rating"], [2000, 1500, 1200]) == pytest.approx(2, abs=1e-9)
    assert found["rating"] == contest["rating"]
    assert found["percentile"] == 80  # 1000 and 1500, below a rating of about 1950


def test_attempts_beyond_the_limit_or_without_a_verdict_do_not_count(tmp_path):
    write_contest(tmp_path)
    late = {"1971A": [False, None, *[False] * 6, True], "1971B": [None, True]}
    (contest,) = rated(tmp_path, late)["per_contest"]
    assert contest["score"]["points"] == 1000


def test_the_rating_lists_left_out_problems(tmp_path):
    write_contest(tmp_path)
    found = rated(tmp_path, {"1971A": [True], "1971A#2": [True], "puzzle": [True]})
    assert found["without_contest"] == ["1971A#2", "puzzle"]
    (contest,) = found["per_contest"]
    assert (contest["problems_asked"], contest["problems_in_contest"]) == (1, 2)


def test_rounds_without_points_go_by_problems_and_penalty(tmp_path):
    people = (("ann", 2.0, 30, 2000), ("bob", 2.0, 10, 1500), ("cid", 1.0, 5, 1200))
    write_contest(tmp_path, worth=(("A", None), ("B", None)), people=people)
    (contest,) = rated(tmp_path, {"1971A": [False, False, True], "1971B": [True]})["per_contest"]
    assert contest["score"] == {"points": 2.0, "minus_penalty": -20.0}
    assert contest["rank"] == 2  # better than ann, not than bob


def test_the_rating_is_the_mean_over_contests_with_standings(tmp_path):
    write_contest(tmp_path)
    write_contest(tmp_path, "1972")
    found = rated(tmp_path, {"1971A": [True], "1972B": [True], "2000A": [True]})
    assert found["without_standings"] == ["2000"]
    ratings = [contest["rating"] for contest in found["per_contest"]]
    assert found["rating"] == pytest.approx(sum(ratings) / 2)


def test_the_printed_formula_is_another_choice(tmp_path):
    write_contest(tmp_path)
    with_self = rated(tmp_path, {"1971B": [True]})["rating"]
    as_printed = rated(tmp_path, {"1971B": [True]}, expectation="as_printed")["rating"]
    assert as_printed < with_self


def test_without_standings_there_is_no_rating(tmp_path):
    write_contest(tmp_path)
    with pytest.raises(InputError, match="2000"):
        rated(tmp_path, {"2000A": [True]})
    with pytest.raises(InputError, match="no problem id has one"):
        rated(tmp_path, {"HumanEval/0": [True]})
    with pytest.raises(InputError, match=r"has no points for problem C|have no points for problem C"):
        rated(tmp_path, {"1971C": [True]})


def test_a_file_of_rounds(tmp_path):
    rows = [{"points": points, "penalty": 0, "old_rating": rating} for points, rating in ((1500, 2000), (900, 1500))]
    path = tmp_path / "rounds.jsonl"
    path.write_text(json.dumps({"contest": 1971, "problems": {"A": 500, "B": 1000}, "rows": rows}))
    assert rated(path, {"1971B": [True]})["per_contest"][0]["rank"] == 2
    path.write_text(json.dumps({"contest": 1971, "rows": rows}))
    with pytest.raises(InputError, match="is a round with points"):
        rated(path, {"1971B": [True]})


@pytest.mark.parametrize(
    ("standings", "message"),
    [
        ("{", "not JSON"),
        ('{"status": "FAILED", "comment": "contestId: not found"}', "contestId: not found"),
        (answer({"rows": []}), "is not an answer of contest.standings"),
        (answer({"problems": [], "rows": []}), "no rated participant"),
    ],
)
def test_files_that_are_not_standings_are_errors(tmp_path, standings, message):
    write_contest(tmp_path)
    (tmp_path / "1971.standings.json").write_text(standings)
    with pytest.raises(DataError, match=message):
        read_contests(tmp_path)


def test_a_folder_without_standings_is_named(tmp_path):
    with pytest.raises(InputError, match=r"standings\.json"):
        read_contests(tmp_path)


@pytest.mark.parametrize(
    ("id", "place"),
    [
        ("codeforces/1971/A", ("1971", "A")),
        ("1972D2", ("1972", "D2")),
        ("livecodebench/1873_A", ("1873", "A")),
        ("codeforces/1971A", ("1971", "A")),
        ("HumanEval/3", None),
        ("livecodebench/abc301_a", None),
    ],
)
def test_the_contest_of_a_problem_is_in_its_id(id, place):
    assert contest_of(id) == place


def test_histogram_and_problem_ids_are_checked(tmp_path):
    (tmp_path / "h.json").write_text('{"1000": 3, "1500": 1}')
    assert read_histogram(tmp_path / "h.json") == {1000: 3, 1500: 1}
    (tmp_path / "ids.json").write_text('["1971A", "1972D1"]')
    assert read_problem_ids(tmp_path / "ids.json") == ["1971A", "1972D1"]
    for name, read in (("h.json", read_histogram), ("ids.json", read_problem_ids)):
        (tmp_path / name).write_text('["x"]')
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)
