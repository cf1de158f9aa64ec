"""The recipes of docs/extend.md and the tutorial on rewards, applied to a copy of the source, in one process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("extend.md", "tutorials/own-reward.md")
)
QUICK = {"autoclave train own.yaml": ["sft.steps=2", "steps=1", "problems_per_step=2", "evaluation.final_samples=1"]}
"""Settings that are added to commands, which would take longer."""
_FENCE = re.compile(r"(?:^`([\w./]+)`:\n\n)?^```(\w+)( error)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RUNNER = """
import json, os, runpy, subprocess, sys, tempfile
import pytest
from autoclave.cli import main

def run(words):
    if words[0] == "autoclave":
        sys.argv = words
        main()
    elif words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
    elif words[0] == "pytest":
        raise SystemExit(int(pytest.main(["-p", "no:cacheprovider", *words[1:]])))
    else:
        raise SystemExit(subprocess.run(words).returncode)

def captured(words):
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
        try:
            run(words)
            code = 0
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        file.seek(0)
        return code, file.read()

sys.path.insert(0, "")
print(json.dumps([captured(words) for words in json.loads(sys.argv[1])]))
"""
"""Runs commands one after the other in one process, which imports torch once; prints exit code and output of each."""


@dataclass
class Step:
    """Commands of one block, and what the page says that they print."""

    commands: list[list[str]]
    fails: bool
    prints: list[str] = field(default_factory=list)


def steps() -> list[Step]:
    """The commands in their order, without those that install."""
    found: list[Step] = []
    for _, language, error, content in _FENCE.findall(PAGE):
        if language == "sh":
            lines = [line for line in content.splitlines() if not line.startswith("pip install")]
            commands = [[*line.split(), *QUICK.get(line, ())] for line in lines]
            found.append(Step(commands, bool(error)))
        elif language == "text":
            found[-1].prints += content.splitlines()
    return found


STEPS = steps()
FILES = {path: content for path, _, _, content in _FENCE.findall(PAGE) if path}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[int, str]]]:
    """By step, exit code and output of each command, after all that the page changes, adds and installs."""
    checkout, work = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("work")
    for folder in ("src", "testing", "docs"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for _, language, _, content in _FENCE.findall(PAGE):
        if language == "diff":
            subprocess.run(["git", "apply", "-"], cwd=checkout, input=content, text=True, check=True)
    for title, content in FILES.items():
        (work / title).parent.mkdir(parents=True, exist_ok=True)
        (work / title).write_text(content)
    path = [checkout / "src", checkout / "testing", *map(_installed, work.glob("*/pyproject.toml"))]
    ended = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps([command for step in STEPS for command in step.commands])],
        cwd=work,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "AUTOCLAVE_CACHE": str(work / "cache"),
            "OMP_WAIT_POLICY": "PASSIVE",  # as compose sets it, which here is imported after torch
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    results = iter(json.loads(ended.stdout))
    return [[next(results) for _ in step.commands] for step in STEPS]


def _installed(project: Path) -> Path:
    """The folder of a package, with what an installer leaves behind of it."""
    described = tomllib.loads(project.read_text())["project"]
    info = project.parent / f"{described['name']}-{described['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {described['name']}\n")
    groups = described["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items()) for group, each in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return project.parent


@pytest.mark.parametrize("number", range(len(STEPS)), ids=[" ".join(step.commands[-1][:4]) for step in STEPS])
def test_a_command_of_the_page_prints_what_the_page_says(outputs: list[list[tuple[int, str]]], number: int):
    step, results = STEPS[number], outputs[number]
    printed = "\n".join(output for _, output in results)
    assert all((code != 0) == step.fails for code, _ in results), printed
    words = " ".join(printed.split())
    assert [line for line in step.prints if " ".join(line.split()) not in words] == [], printed


def test_the_page_has_a_recipe_of_every_kind():
    assert len(STEPS) >= 8
    assert all(step.commands and step.prints for step in STEPS)


def test_the_algorithm_of_the_page_is_the_example():
    example = ROOT / "examples"
    shown = {title: content for title, content in FILES.items() if title.startswith("own_algorithm/")}
    assert shown == {title: (example / title).read_text(encoding="utf-8") for title in shown}
    assert len(shown) == 4
