"""One file of problems is enough: a share of it is held out, and near duplicates stay on one side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoclave.config import ProblemFilesConfig, TrainConfig, dump, load, parse_override
from autoclave.core import ConfigError, InputError, Problem, StdinCase, StdinTests
from autoclave.problems import ProblemSets
from autoclave.problems.sets import split_problems

ANIMALS = ("badger", "falcon", "otter", "lizard", "heron", "marten", "beetle", "salmon", "ferret", "magpie")
PLACES = ("orchard", "harbour", "quarry", "meadow", "chapel", "tunnel", "market", "lagoon", "viaduct", "bakery")
TASKS = (
    "count the distinct routes that avoid every flooded crossing between dawn and the second bell",
    "report the largest sum of weights that three neighbouring crates reach without exceeding their lift",
    "decide whether the sequence of signals can be reversed by swapping adjacent lamps only twice",
    "find the shortest word that contains each letter of all the tickets printed since yesterday",
)


def problem(number: int, statement: str, tests: int | None = None, count: int = 6) -> Problem:
    cases = [StdinCase(f"{tests or number} {i}\n", f"{31 * (tests or number) + i}\n") for i in range(count)]
    return Problem(id=f"p{number:03d}", statement=statement, tests=StdinTests("stdin", cases))


def statement(number: int) -> str:
    animal, place, task = ANIMALS[number % 10], PLACES[number // 10 % 10], TASKS[number % 4]
    return (
        f"Variant {number}: a {animal} named K{number * 7919 % 1000} walks around the {place}. Given the number "
        f"{number * 104729 % 9973} and a list, {task}. Print one integer modulo {number * 15485863 % 99991}."
    )


def families(count: int, size: int) -> list[list[Problem]]:
    """Copies of one statement with more or fewer of the same tests, longer at its begin; and problems of their own."""
    own = [[problem(number, statement(number))] for number in range(count)]
    copied = [
        [
            problem(500 + 10 * family + copy, f"{'Please note. ' * copy}{text}", tests=500 + family, count=5 + copy)
            for copy in range(size)
        ]
        for family, text in enumerate(
            f"On day {day} the {ANIMALS[day]} of the {PLACES[day]} has to {task}, and every keeper writes the answer "
            f"into the ledger of {PLACES[-day]} before {day + 3} o'clock; read the integers and print the result."
            for day, task in enumerate(TASKS, 1)
        )
    ]
    return own + copied


def ids(problems: Sequence[Problem]) -> set[str]:
    return {each.id for each in problems}


@pytest.mark.parametrize("seed", range(4))
def test_near_duplicates_are_on_one_side_and_each_problem_on_exactly_one(seed: int):
    grouped = families(40, 5)
    problems = [each for family in grouped for each in family]
    train, heldout = map(ids, split_problems(problems, 0.2, seed))
    assert (train | heldout, train & heldout) == (ids(problems), set())
    assert len(heldout) == round(0.2 * len(problems))
    assert all(ids(family) <= train or ids(family) <= heldout for family in grouped)


def test_a_split_is_the_same_for_a_seed_and_mostly_for_a_file_that_grew():
    problems = [problem(number, statement(number)) for number in range(60)]
    first, again, other = (ids(split_problems(problems, 0.2, seed)[1]) for seed in (1, 1, 2))
    assert first == again != other
    grown = ids(split_problems([*problems, problem(60, statement(60))], 0.2, 1)[1])
    assert len(first & grown) >= len(first) - 2


def test_equal_tests_are_on_one_side_whatever_the_words_say():
    problems = [problem(1, "Say it.", count=1), problem(2, "Tell me.", tests=1, count=1), problem(3, "Else.")]
    train, heldout = split_problems(problems, 0.3, 0)
    assert (ids(train), ids(heldout)) == ({"p001", "p002"}, {"p003"})
    with pytest.raises(InputError, match="2 problems are too few to hold some out"):
        split_problems(problems[:2], 0.3, 0)


def test_one_file_is_enough_to_train(tmp_path: Path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(problem(n, statement(n)).to_json()) + "\n" for n in range(20)))
    (tmp_path / "recipe.yaml").write_text(f"problems: {{path: {path}}}\n")
    config = load(TrainConfig, None, [parse_override(f"problems.path={path}")]).config
    assert config.problems == ProblemFilesConfig(path=path)
    assert load(TrainConfig, tmp_path / "recipe.yaml").config == config
    found = ProblemSets(config)
    assert (len(found.train), len(found.heldout)) == (18, 2)
    assert found.heldout_description.startswith("10% of the problems of ")


def test_one_file_takes_the_place_of_the_problems_of_a_recipe(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("problems: {name: files, train: a, heldout: b, seed: 3}\n")
    settings = [parse_override(text) for text in ("problems.heldout_share=0.2", "problems.path=c")]
    found = load(TrainConfig, recipe, settings)
    assert found.config.problems == ProblemFilesConfig(path=Path("c"), heldout_share=0.2, seed=3)
    again = tmp_path / "again.yaml"
    again.write_text(dump(found.config))
    assert load(TrainConfig, again).config == found.config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["problems.train=b", "problems.path=a"], "path is split; give it alone, or train and heldout"),
        (["problems.path=a", "problems.train=b"], "path is split; give it alone, or train and heldout"),
        (["problems.name=files", "problems.train=a"], "heldout is missing; give train and heldout, or path alone"),
    ],
)
def test_a_file_to_split_and_files_of_parts_exclude_each_other(settings: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        load(TrainConfig, None, map(parse_override, settings))
