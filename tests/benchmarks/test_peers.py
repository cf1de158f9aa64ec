"""Graders of other projects beside ours: a checkout that is not one is refused, and answers are counted."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import peers
import pytest
from peer_graders import MODULES, module_file

from service import served

GRADER = """
import os, sys
import lcb_runner.evaluation  # the packages above are there, without what they import

def evaluate_generations_by_problem(arguments):
    [source], sample, debug, timeout = arguments
    print("graders print")
    return [[-2 if "print(7)" in source or "pass" in source or "//" in source
             or source == "print(\\n" else True]], [{}]
"""


def write_checkout(folder: Path, name: str, source: str) -> Path:
    """A checkout whose packages cannot be imported without the rest of the project."""
    where, module = MODULES[name]
    *packages, _ = module.split(".")
    for stop in range(1, len(packages) + 1):
        package = folder.joinpath(where, *packages[:stop])
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("import libraries_that_are_missing\n")
    path = folder / where / f"{module.replace('.', '/')}.py"
    path.write_text(source)
    return folder


def figures_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, float]:
    monkeypatch.delenv("AUTOCLAVE_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["peers.py", "--tiny", *words, "--json", str(tmp_path / "figures.json")])
    peers.main()
    return json.loads((tmp_path / "figures.json").read_text())["figures"]


@pytest.mark.parametrize("name", MODULES)
def test_a_folder_without_the_grader_is_named_with_its_option(name: str, tmp_path: Path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        figures_of(tmp_path, monkeypatch, f"--{name}", str(tmp_path))
    assert f"--{name} {tmp_path}: has no" in capsys.readouterr().err


def test_answers_are_compared_and_costs_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    checkout = write_checkout(tmp_path / "lcb", "livecodebench", GRADER)
    assert module_file("livecodebench", checkout).is_file()
    with served("judge.workers=1", "compatible.protocols=[sandbox_fusion]") as (url, _):
        words = ("--livecodebench", str(checkout), "--sandbox-fusion", url)
        figures = figures_of(tmp_path, monkeypatch, *words)
    printed = capsys.readouterr().out
    assert "left out, for want of a path: open-r1, prime-rl, verl" in printed
    assert figures["livecodebench_programs"] == len(peers.KINDS) - 1
    # The stub lets every program pass that it does not know, ours refuses one that ends with an error.
    assert figures["livecodebench_disagreements"] == 1
    assert re.search(r"ours refused +theirs accepted +1 +first: 'numbers", printed)
    assert figures["sandbox-fusion_disagreements"] == 0
    assert figures["livecodebench_call_cpu_over_ours"] > 0
    assert figures["sandbox-fusion_stdin_wall_over_ours"] > 0
    assert "sandbox-fusion_stdin_cpu_over_ours" not in figures  # the server is elsewhere


def test_a_grader_that_cannot_be_imported_ends_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkout = write_checkout(tmp_path / "verl", "verl", "import a_library_that_is_missing\n")
    with pytest.raises(SystemExit, match=r"the grader of verl has ended: .*a_library_that_is_missing"):
        figures_of(tmp_path, monkeypatch, "--verl", str(checkout))
