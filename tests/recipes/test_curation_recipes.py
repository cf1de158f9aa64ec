"""Curation by the shipped recipes drops what the published rules drop, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoclave.compose.curation import curate
from autoclave.config import CurateConfig, Override, load
from autoclave.core.files import read_jsonl
from benchmarks.recipes import RECIPES
from tests.problems.curation.conftest import ADD, candidate
from tests.problems.curation.conftest import judge as judge

WRONG, SEVEN, TWICE = "print(0)", "input()\nprint(7)", "print(2 * int(input()))"
FORWARD, BACKWARD = "n = int(input())\nprint(1, n - 1)", "n = int(input())\nprint(n - 1, 1)"


def sums(first: int, count: int = 5) -> tuple[tuple[str, str], ...]:
    return tuple((f"{first} {number}\n", f"{first + number}\n") for number in range(count))


def rows() -> list[dict[str, Any]]:
    pairs = tuple((f"{n}\n", f"1 {n - 1}\n") for n in range(5, 10))
    sevens, twos = (tuple((f"{n}\n", f"{answer(n)}\n") for n in range(5)) for answer in (lambda n: 7, lambda n: 2 * n))
    made = [
        candidate(
            "right", ADD, cases=sums(1), statement="A pear costs a coins and an apple b. Print the price of both."
        ),
        candidate(
            "copy", ADD, cases=sums(1), statement="A PEAR costs a coins, and an apple b: print the price of both!"
        ),
        candidate("four tests", ADD, cases=sums(100, 4), statement="Two trains meet. How many cars do they have?"),
        candidate("one solution fails", ADD, WRONG, cases=sums(200), statement="Count sheep of two meadows."),
        candidate("all solutions fail", WRONG, cases=sums(300), statement="Tell how much oil is in two lamps."),
        candidate("several answers", FORWARD, BACKWARD, cases=pairs, statement="Print any two numbers of sum n."),
        candidate("weak", SEVEN, cases=sevens, statement="Whatever star is named, tell its colour by a digit."),
        candidate("long", TWICE, cases=twos, statement=f"A parcel weighs n stones. {'Postage is due. ' * 400}"),
    ]
    return [each.problem.to_json() for each in made]


def dropped_by(recipe: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Stage by id of what is dropped from `rows` by the rules of a shipped recipe."""
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(folder / "cache"))
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
    shipped = load(CurateConfig, RECIPES / recipe).config
    needs_solutions = shipped.sources[0].needs_solutions
    sources = [{"set": "autoclave", "path": str(source), "needs_solutions": needs_solutions}]
    changes = {"sources": sources, "evaluation_sets": [], "judge.time_limit_range": [0.5, 12.0], "judge.workers": 2}
    config = load(CurateConfig, RECIPES / recipe, [Override(*each, "test") for each in changes.items()]).config
    curate(config, folder / "out", lambda line: None)
    lines = read_jsonl(folder / "out" / "dropped.jsonl.zst", "dropped")
    return {line["id"]: line["stage"] for _, line in lines}


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (
            "curate-deepcoder.yaml",
            {
                "copy": "deduplication",
                "four tests": "minimum_tests",
                "one solution fails": "verification",
                "all solutions fail": "verification",
                "several answers": "verification",  # of its solutions one fails
            },
        ),
        ("curate-apps-introductory.yaml", {"all solutions fail": "verification", "long": "prompt_length"}),
        ("curate-coderl-plus.yaml", {}),
    ],
)
def test_a_recipe_drops_by_the_published_rules_alone(
    judge: object, recipe: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert dropped_by(recipe, tmp_path, monkeypatch) == expected


def test_the_windows_of_deepcoder_end_with_the_days_that_it_names():
    config = load(CurateConfig, RECIPES / "curate-deepcoder.yaml").config
    trained, evaluated = config.sources[2], config.evaluation_sets[0]
    days = [day for each in (trained, evaluated) for day in (each.released_from, each.released_before)]
    assert [str(day) for day in days] == ["2023-05-01", "2024-08-01", "2024-08-01", "2025-02-02"]
