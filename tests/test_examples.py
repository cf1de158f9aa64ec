"""The examples for each audience are short and run, and the index names every example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.algorithms.test_own_algorithm import install

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
INDEX = (EXAMPLES / "README.md").read_text(encoding="utf-8")
OF_AUDIENCES = (
    ("own_reward/short/settings.py", "own_reward/short/task.py"),
    ("judge_one_program.py",),
    ("agents/openai_chat.py",),  # runs in tests/act/test_examples.py
    ("benchmark.yaml",),
)


def ran(*words: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_index_names_every_example():
    named = {target.split("/")[0] for target in re.findall(r"\]\(([\w./]+)\)", INDEX)}
    assert named - {".."} == {path.name for path in EXAMPLES.iterdir()} - {"README.md", "__pycache__"}


@pytest.mark.parametrize("files", OF_AUDIENCES, ids=lambda files: files[0])
def test_an_example_for_an_audience_has_less_than_60_lines(files: tuple[str, ...]):
    assert sum(len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) for name in files) < 60


def test_one_program_is_judged():
    lines = ran("examples/judge_one_program.py").splitlines()
    assert [line.split()[:3] for line in lines] == [["accepted", "reward", "1.0"], ["wrong_answer", "reward", "0.0"]]


def test_responses_are_evaluated(tmp_path: Path):
    (command,) = re.findall(r"`autoclave (evaluate [^`]+) --out results`", INDEX)
    printed = ran("-m", "autoclave", *command.split(), "--out", str(tmp_path / "results"))
    assert "37.50 %" in printed  # two of four, and one of four
    assert (tmp_path / "results" / "report.html").exists()


@pytest.mark.slow
def test_a_policy_is_trained_with_a_reward_of_its_own(tmp_path: Path):
    install(tmp_path, tomllib.loads((EXAMPLES / "own_reward/pyproject.toml").read_text())["project"]["entry-points"])
    for name, numbers in (("train", range(6)), ("heldout", range(6, 8))):
        (tmp_path / f"{name}.jsonl").write_text("".join(map(problem, numbers)))
    files = [f"problems.{name}={tmp_path / name}.jsonl" for name in ("train", "heldout")]
    smaller = ["problems.name=files", *files, "task.free_characters=6", "steps=1", "sft.steps=80", "sft.batch_size=8"]
    smaller += ["sft.optimizer={learning_rate: 1e-2, warmup_steps: 5}", "model.tiny.layers=1"]
    smaller += [
        "problems_per_step=4",
        "evaluation.problems=2",
        "model.tiny.hidden_size=32",
        "model.tiny.heads=2",
        "model.tiny.vocabulary=300",
        "model.threads=1",
    ]
    path = os.pathsep.join([str(tmp_path), str(EXAMPLES / "own_reward")])
    words = ("train", "examples/own_reward/recipe.yaml", "--out", str(tmp_path / "run"), *smaller)
    ran("-m", "autoclave", *words, PYTHONPATH=path, AUTOCLAVE_CACHE=str(tmp_path / "cache"))
    (step,) = (
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if '"train"' in line
    )
    assert 0 < step["reward/mean"] < 0.98  # "print(3)" has two characters too many


def problem(number: int) -> str:
    tests = {"kind": "stdin", "cases": [{"input": "", "output": f"{number}\n"}]}
    plain = {"format": "autoclave-problem/1", "id": f"say-{number}", "statement": f"Say {number}.", "tests": tests}
    return json.dumps(plain | {"solutions": [f"print({number})"]}) + "\n"
