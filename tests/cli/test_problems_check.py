"""`autoclave problems check`: what is wrong with a file of problems, what a model makes of it, and its two parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.core import read_problems
from autoclave.core.files import read_jsonl

from .test_curate_command import ADD, MARKET, MINES, PAIRS, SKY, SUBTRACT, line

SEVENFOLD = "a, b = map(int, input().split())\nprint(7 * a + b)"
BRANCHES = (
    "a, b = map(int, input().split())\nif a > 1000:\n    a = b * 2 - 7\nif b < -900:\n    b = a // 3 + 5\nprint(a + b)"
)
BRANCHES += "\n" + "\n".join(f"if a == {900 + k} and b > {k}:\n    a = a * {k} - 1" for k in range(2, 12))


def edited(text: str, **changes: Any) -> str:
    return json.dumps(json.loads(text) | changes) + "\n"


LINES = [
    line("market", MARKET, ADD, lambda a, b: a + b),
    line("fair", MARKET.replace("village", "town").replace("coins", "crowns"), ADD, lambda a, b: a + b),
    line("mines", MINES, SUBTRACT, lambda a, b: a - b),
    line("broken", "Multiply the numbers of two shelves.", ADD, lambda a, b: a * b),
    edited(line("half", "Divide a cake of two halves.", ADD, lambda a, b: 7 * a + b), solutions=[SEVENFOLD, ADD]),
    line("sky", SKY, "print('blue')", lambda a, b: "blue"),
    line("branches", "Add two numbers of any size that are written on cards.", BRANCHES, lambda a, b: a + b, PAIRS[:4]),
    line("mines", "Add.", ADD, lambda a, b: a + b),
    edited(line("bare", "Subtract twice the second of two weights.", "", lambda a, b: a - 2 * b), solutions=[]),
    edited(line("odd", "Triple the first of two lengths.", "", lambda a, b: 3 * a), profile="nowhere"),
    "{nonsense\n",
]  # fmt: skip
SOUND = ("market", "fair", "mines", "bare")
ERRORS = {
    4: "all_solutions_fail",
    5: "solution_fails",
    6: "trivial_program_passes",
    7: "mutants_pass",
    8: "id_used_before",
    10: "not_judgeable",
    11: "not_json",
}
WARNINGS = {2: "near", 9: "no_solutions"}


def responses(solved: dict[str, list[str]]) -> str:
    said = [{"problem_id": id, "response": f"```python\n{each}\n```"} for id, given in solved.items() for each in given]
    return "".join(json.dumps(each) + "\n" for each in said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "mine.jsonl").write_text("".join(LINES))
    solved = {"market": [ADD, "print(0)"], "fair": [ADD, ADD], "mines": ["print(0)"] * 2, "bare": ["print(0)"] * 2}
    (folder / "said.jsonl").write_text(responses(solved))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    words = ["--model", folder / "said.jsonl", "--samples", 2, "--split", folder / "parts", "--json"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AUTOCLAVE_CACHE", str(folder / "cache"))
        ended = CliRunner().invoke(cli, ["problems", "check", *map(str, [folder / "mine.jsonl", *words])])
    assert str(ended.exception) == f"7 of 11 problems of {folder / 'mine.jsonl'} have an error"
    return json.loads(ended.stdout)


def test_each_problem_is_named_with_place_rule_evidence_and_fix(found: dict[str, Any], folder: Path):
    lines = {int(one["place"].rpartition(":")[2]): one for one in found["findings"] if one["rule"] != "zero_variance"}
    assert {line: one["rule"] for line, one in lines.items() if not one["is_warning"]} == ERRORS
    assert {line: one["rule"] for line, one in lines.items() if one["is_warning"]} == WARNINGS
    assert all(one["place"] == f"{folder / 'mine.jsonl'}:{line}" for line, one in lines.items())
    assert all(one["value"] and one["fix"] for one in lines.values())
    assert (found["problems"], found["sound"]) == (11, 4)


def test_a_model_that_mostly_solves_all_or_nothing_of_a_problem_is_a_warning(found: dict[str, Any]):
    assert found["model"] == {
        "model": "said.jsonl",
        "pass@1": 0.375,
        "pass@2": 0.5,
        "zero_variance_share": 0.75,
        "never_solved": 2,
        "always_solved": 1,
    }
    (warning,) = (one for one in found["findings"] if one["rule"] == "zero_variance")
    assert (warning["is_warning"], warning["value"].startswith("75% of the groups of ")) == (True, True)


def test_sound_problems_are_written_in_two_parts_with_near_duplicates_in_one(found: dict[str, Any], folder: Path):
    train, heldout = ([one.id for one in read_problems(folder / "parts" / f"{n}.jsonl")] for n in ("train", "heldout"))
    assert sorted(train + heldout) == sorted(SOUND)
    assert ("market" in train) == ("fair" in train)
    assert list(found["split"].values()) == [len(train), len(heldout)]
    rates = {line["id"]: line["pass_rate"] for _, line in read_jsonl(folder / "parts/pass_rates.jsonl")}
    assert rates == {"market": 0.5, "fair": 1.0, "mines": 0.0, "bare": 0.0}


def test_a_file_without_errors_exits_with_0_and_a_summary(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(folder / "cache"))
    (folder / "sound.jsonl").write_text(LINES[0] + LINES[2] + LINES[8])
    ended = CliRunner().invoke(cli, ["problems", "check", str(folder / "sound.jsonl")], catch_exceptions=False)
    warning, summary = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert warning == (
        f"{folder / 'sound.jsonl'}:3: bare: warning: no_solutions: nothing shows that its tests are right. "
        "Fix: add a solution, which shows that the tests are right"
    )
    assert summary.startswith(f"{folder / 'sound.jsonl'}: 3 of 3 problems have no error; left after each stage: read 3")


def test_places_in_a_folder_name_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path / "cache"))
    for name in ("one/a.jsonl", "two/a.jsonl"):
        (tmp_path / "mine" / name).parent.mkdir(parents=True)
        (tmp_path / "mine" / name).write_text("{nonsense\n")
    ended = CliRunner().invoke(cli, ["problems", "check", str(tmp_path / "mine"), "--json"])
    places = {one["place"] for one in json.loads(ended.stdout)["findings"]}
    assert places == {f"{tmp_path}/mine/{name}/a.jsonl:1" for name in ("one", "two")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine.jsonl", "temperature=0.5"], "Error: temperature: needs --model. Fix: give --model"),
        (["mine.jsonl", "recipe.yaml"], 'Error: "recipe.yaml": a setting is path=value'),
        (["nothing.jsonl"], "Error: nothing.jsonl: no such file or folder"),
        (["empty.jsonl"], "Error: empty.jsonl: has no problem"),
    ],
)
def test_mistakes_of_the_command_are_named(
    complaint: Callable[..., tuple[int, str]], tmp_path: Path, words: list[str], message: str
):
    (tmp_path / "mine.jsonl").write_text(LINES[0])
    (tmp_path / "empty.jsonl").write_text("")
    code, said = complaint("problems", "check", *words)
    assert (code, message in said) == (2, True), said


def test_rows_for_trainers_are_counted_by_kind_and_by_reason(tmp_path: Path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    sound = [
        json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1\n", "2\n"]}),
        json.dumps([{"input": "[1]", "output": "1", "testtype": "functional", "metadata": {"func_name": "f"}}]),
        json.dumps(["assert f(1) == 1"]),
    ]
    odd = ["34", json.dumps([{"input": "1"}])]
    path = tmp_path / "train.parquet"
    rows = [{"data_source": "code", "reward_model": {"ground_truth": truth}} for truth in sound + odd]
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    done = CliRunner().invoke(cli, ["problems", "check", str(path)])
    assert done.exit_code == 1, done.output
    assert f"{path}:4: wrong_type: tests = 34" in done.output
    assert f"{path}: 5 rows\njudged: 1 rows as stdin, 2 to 2 tests each" in done.output
    assert "not judged: 1 rows: missing_field" in done.output
    parquet.write_table(arrow.Table.from_pylist(rows[:3]), path)
    done = CliRunner().invoke(cli, ["problems", "check", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["judged"] == {
        kind: [1, n, n, n] for kind, n in (("stdin", 2), ("call", 1), ("check", 1))
    }
    done = CliRunner().invoke(cli, ["problems", "check", str(path), "--split", str(tmp_path / "parts")])
    assert "--split: needs a problem file" in str(done.exception)
