"""`autoclave curate` as users call it, with files of our own format."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoclave.core import read_problems
from autoclave.core.files import read_jsonl

ADD = "print(sum(map(int, input().split())))"
SUBTRACT = "a, b = map(int, input().split())\nprint(a - b)"
PAIRS = ((1, 2), (0, 0), (5, 7), (10, -3), (100, 23), (4, 4))
MARKET = (
    "In the market of a small village a pear costs a coins and an apple costs b coins. Both are given on one line of "
    "the input, divided by a blank. Print what a customer has to pay for one pear and one apple together."
)
MINES = (
    "A miner begins his shift with a gallons of lamp oil and burns b of them before the whistle blows. Tell how much "
    "oil he carries home, or what he owes to the company store if that is below zero."
)
SKY = (
    "Look out of the window of the observatory and report the colour that the telescope shows for the number of a star."
)


def line(id: str, statement: str, source: str, answer, pairs=PAIRS) -> str:
    cases = [{"input": f"{a} {b}\n", "output": f"{answer(a, b)}\n"} for a, b in pairs]
    problem = {"format": "autoclave-problem/1", "id": id, "statement": statement, "solutions": [source]}
    return json.dumps(problem | {"tests": {"kind": "stdin", "cases": cases}}) + "\n"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").write_text(
        line("market", MARKET, ADD, lambda a, b: a + b)
        + line("fair", MARKET.replace("village", "town").replace("coins", "crowns"), ADD + "\n", lambda a, b: a + b)
        + line("mines", MINES, SUBTRACT, lambda a, b: a - b)
        + line("broken", "Multiply the numbers of two shelves.", ADD, lambda a, b: a * b)
        + line("sky", SKY, "print('blue')", lambda a, b: "blue")
        + line("few", "Add.", ADD, lambda a, b: a + b, PAIRS[:3])
        + line("array", "Sum the two entries of a vector.", f"import numpy\n{ADD}", lambda a, b: a + b)
    )
    (tmp_path / "test.jsonl").write_text(line("eval", MINES.upper(), SUBTRACT, lambda a, b: a - b))
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "name: try\nsources: [{set: autoclave, path: train.jsonl, licence: MIT}]\n"
        "evaluation_sets: [{set: autoclave, path: test.jsonl, name: heldout}]\n"
    )
    return path


REASONS = {
    "fair": "near",
    "mines": "exact",
    "broken": "all_solutions_fail",
    "sky": "trivial_program_passes",
    "few": "few_tests",
    "array": "all_solutions_fail",
}


def result(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"AUTOCLAVE_CACHE": str(tmp_path / "cache")}


def test_a_set_is_written_with_a_reason_for_every_row(autoclave, recipe: Path, tmp_path: Path, environment):
    ended = autoclave("curate", recipe, "--out", "set", env=environment)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == (
        "1 problems in set, 0 of them held out; set/report.html shows what was dropped"
    )
    assert (
        "verification: 1 problems were dropped because solutions import numpy. Fix: sources[].profile=lcb_numpy\n"
        in ended.stdout
    )
    out = tmp_path / "set"
    assert [one.id for one in read_problems(out / "problems.jsonl.zst")] == ["market"]
    assert {value["id"]: value["reason"] for _, value in read_jsonl(out / "dropped.jsonl.zst")} == REASONS
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["sources"][0]["licence"] == "MIT"
    assert list(manifest["sources"][0]["files"]) == ["train.jsonl"]
    assert manifest["stages"][0]["kept"] == {"autoclave": 7}

    again = autoclave("curate", recipe, "--out", "again", env=environment)
    assert again.returncode == 0, again.stderr
    assert result(tmp_path / "again") == result(out)


def test_killed_again_and_again_it_writes_the_same_set(autoclave, recipe: Path, tmp_path: Path, environment):
    whole = autoclave(
        "curate", recipe, "--out", "whole", env=environment | {"AUTOCLAVE_CACHE": str(tmp_path / "other")}
    )
    assert whole.returncode == 0, whole.stderr
    draw, first_s, kills = random.Random(0), 0.5, 0
    command = [sys.executable, "-m", "autoclave", "curate", recipe, "--out", "set"]
    while True:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            assert process.wait(draw.uniform(0.8, 1.2) * first_s * 1.35**kills) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        if kills > 1:
            break
        shutil.rmtree(tmp_path / "set")  # a fast machine: from the beginning, and sooner
        shutil.rmtree(environment["AUTOCLAVE_CACHE"])
        first_s, kills = first_s / 2, 0
    assert result(tmp_path / "set") == result(tmp_path / "whole")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "sources: there is none"),
        (("sources=[{set: autoclave, path: nowhere.jsonl}]",), "nowhere.jsonl: no such file"),
        (("sources=[{set: autoclav, path: train.jsonl}]",), "set = 'autoclav': did you mean autoclave?"),
        (("sources=[{set: autoclave}]",), "give either path or hub"),
        (("sources=[{set: autoclave, path: a}, {set: autoclave, path: b}]",), "sources[1].name = 'autoclave'"),
        (("sources=[{set: autoclave, path: train.jsonl}]", "tokenizer=nowhere"), "tokenizer = 'nowhere'"),
    ],
)
def test_errors_are_reported_before_any_work(autoclave, recipe: Path, words, complaint: str):
    ended = autoclave("curate", *words, "--out", "set")
    assert ended.returncode == 2, ended.stderr
    assert complaint in ended.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "extra: 0 problems of 0 rows; no row. Fix: "),
        ("\n\n", "extra: 0 problems of 0 rows; no row. Fix: "),
        ('{"a": 1}\n{"b": 2}\n', "extra: 0 problems of 2 rows; first reason: row "),
    ],
)
@pytest.mark.parametrize("others", ["", "{set: autoclave, path: train.jsonl}, "])
def test_a_source_without_a_problem_is_an_error(
    autoclave, recipe: Path, tmp_path: Path, environment, content: str, complaint: str, others: str
):
    (tmp_path / "extra.jsonl").write_text(content)
    sources = f"sources=[{others}{{set: autoclave, path: extra.jsonl, name: extra}}]"
    ended = autoclave("curate", sources, "verification=null", "strength=null", "--out", "set", env=environment)
    assert (ended.returncode, complaint in ended.stderr) == (1, True), ended.stderr
    assert (tmp_path / "set" / "report.html").exists()


def test_rules_that_leave_no_problem_are_an_error(autoclave, recipe: Path, environment):
    settings = ("sources=[{set: autoclave, path: train.jsonl}]", "minimum_tests=99")
    ended = autoclave("curate", *settings, "verification=null", "strength=null", "--out", "set", env=environment)
    assert ended.returncode == 1, ended.stderr
    assert "autoclave: 0 problems of 7 rows; first reason: row " in ended.stderr
    assert ": few_tests: " in ended.stderr
