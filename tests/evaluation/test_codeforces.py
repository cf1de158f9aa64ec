"""Codeforces ratings."""

from __future__ import annotations

import gzip
import json
import math
import random
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core.files import read_jsonl
from autoclave.evaluation.standings import (
    HIGHEST,
    LOWEST,
    Score,
    Standing,
    contest_result,
    expected_rank,
    overall,
    percentile,
    points_of,
    rank_of,
    rating_of_rank,
    score_by_points,
    score_by_solved,
)

RATINGS = st.lists(st.integers(300, 4000), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("attempts", "points"),
    [
        ([True], 500),
        ([False, False, True, False], 400),
        ([False, False], 0),
        ([], 0),
        ([False] * 7 + [True], 150),
        ([False] * 8 + [True], 0),  # the ninth does not count
    ],
)
def test_each_wrong_attempt_before_the_right_one_costs_50_points(attempts, points):
    assert points_of(attempts, 500) == points


def test_points_are_never_below_zero():
    assert points_of([False] * 7 + [True], 300) == 0


def test_scores_of_both_kinds_of_rounds():
    attempts = {"A": [False, False, True], "B": [True], "C": [False, False]}
    assert score_by_points(attempts, {"A": 500, "B": 1000, "C": 1500}) == Score(1400)
    assert score_by_solved(attempts) == Score(2, -20)
    assert score_by_solved({"A": [False]}) == Score(0)
    with pytest.raises(KeyError):
        score_by_points({"D": [True]}, {"A": 500})


def test_a_contest_by_hand():
    """Third of four: two of three participants of 1500 are expected before it, so 10^((R - 1500) / 400) = 1/2."""
    score = score_by_points({"A": [False, False, True], "B": [True]}, {"A": 500, "B": 1000})
    standings = [Standing(Score(points), 1500) for points in (2000, 1400, 100)]
    found = contest_result("1", score, standings)
    assert (found.score, found.rank, found.participants) == (Score(1400), 3, 3)
    assert found.rating == pytest.approx(1500 + 400 * math.log10(0.5), abs=1e-6)
    assert overall([found, found], {1000: 3, 1379: 1, 1380: 1})["percentile"] == 80.0


def test_solving_all_is_first_and_solving_nothing_is_last():
    standings = [Standing(Score(points), 1500) for points in (3, 2, 2, 0)]
    assert contest_result("1", Score(4), standings).rating == HIGHEST
    assert contest_result("1", Score(0), standings).rating == LOWEST  # behind all, the one with nothing too
    with pytest.raises(ValueError, match="other participants"):
        contest_result("1", Score(1), [])


def test_without_the_participant_as_the_report_of_deepcoder_prints_it():
    assert rating_of_rank(1, [1500, 1500], "as_printed") == pytest.approx(1500)
    assert rating_of_rank(2, [1500, 1500], "with_self") == pytest.approx(1500)


def test_penalty_decides_between_equal_points_and_ties_share_the_last_place():
    others = [Score(2, -10), Score(3), Score(2, -20), Score(2, -10), Score(0)]
    assert [rank_of(score, others) for score in (Score(3), Score(2, -10), Score(2, -20), Score(0))] == [2, 4, 5, 6]
    assert rank_of(Score(0), []) == 1


@given(RATINGS, st.data())
def test_the_rating_solves_the_equation_and_falls_as_the_rank_grows(others, data):
    rank = data.draw(st.floats(1.001, len(others) + 0.999))
    rating = rating_of_rank(rank, others)
    if LOWEST < rating < HIGHEST:
        assert expected_rank(rating, others) == pytest.approx(rank, abs=1e-6)
    assert rating_of_rank(rank + 0.0005, others) <= rating


@given(RATINGS, st.randoms(use_true_random=False))
def test_the_order_of_participants_does_not_matter(others, chance: random.Random):
    shuffled = list(others)
    chance.shuffle(shuffled)
    assert rating_of_rank(1.5, shuffled) == pytest.approx(rating_of_rank(1.5, others), abs=1e-6)


def test_percentiles_as_published(data: Path):
    with gzip.open(data / "codeforces_ratings_2024.json.gz", "rt") as file:
        histogram = {int(rating): number for rating, number in json.load(file).items()}
    assert sum(histogram.values()) == 89352
    found = [round(percentile(rating, histogram), 1) for rating in (1936, 1791, 1658, 1991, 1918, 1948)]
    assert found == [95.3, 92.7, 88.5, 96.1, 94.9, 95.4]
    with pytest.raises(ValueError, match="no users"):
        percentile(1500, {})


@pytest.mark.parametrize(("contest", "median"), [(1349, 46), (1342, 69), (1352, 111)])
def test_real_rounds(data: Path, contest: int, median: int):
    """Ranks of shuffled rows, and ratings beside the platform's own performance."""
    rounds = {row["contest"]: row["rows"] for _, row in read_jsonl(data / "codeforces_rounds_dev.jsonl.gz")}
    rows = list(rounds[contest])
    random.Random(0).shuffle(rows)
    scores = [Score(row["points"], -row["penalty"]) for row in rows]
    ordered = sorted(scores)
    places = [len(ordered) - bisect_left(ordered, score) for score in scores]
    before = np.array([row["old_rating"] for row in rows], dtype=np.float64)
    for number in range(50):
        assert places[number] == rank_of(scores[number], scores[:number] + scores[number + 1 :])
    differences: list[float] = []
    for number in range(0, len(rows), max(1, len(rows) // 500)):
        if rows[number]["performance"] == "Infinity":
            continue
        others = np.delete(before, number)
        rating = rating_of_rank(float(places[number]), others)
        if places[number] == len(rows):
            assert rating == LOWEST  # the last place of all, which no rating expects
            continue
        assert expected_rank(rating, others) == pytest.approx(places[number], abs=1e-6)
        differences.append(rating - rows[number]["performance"])
    assert np.median(differences) == pytest.approx(median, abs=2)
