"""`autoclave report`: the page of one run, and of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.conftest import write_run

from .conftest import Ended


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Run folders `runs/a`, `runs/b` and `runs/c`."""
    return [write_run(tmp_path / "runs" / name, steps=2) for name in "abc"]


def test_one_run_has_a_report_of_its_own(autoclave: Callable[..., Ended], runs: list[Path]):
    ended = autoclave("report", "runs/a")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "runs/a/report.html\n", "")
    assert "Autoclave training report" in (runs[0] / "report.html").read_text("utf-8")


def test_several_runs_are_compared_on_one_page(autoclave: Callable[..., Ended], runs: list[Path]):
    ended = autoclave("report", "runs/a", "--against", "runs/b", "--against", "runs/c")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "runs/a/comparison.html\n", "")
    assert "<h1>a, b, c</h1>" in (runs[0] / "comparison.html").read_text("utf-8")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", [(), ("--against", "runs/b")], ids=["one", "several"])
def test_out_sets_the_path_of_the_page(autoclave: Callable[..., Ended], tmp_path: Path, words: tuple[str, ...]):
    assert autoclave("report", "runs/a", *words, "--out", "pages/mine.html").stdout == "pages/mine.html\n"
    assert (tmp_path / "pages" / "mine.html").is_file()


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against", "nowhere"], "run folder nowhere: no such folder"),
        (["--against", "runs/../runs/a"], "--against runs/../runs/a: the same run twice; give another"),
    ],
    ids=["missing", "twice"],
)
def test_runs_that_cannot_be_compared_are_named(
    complaint: Callable[..., tuple[int, str]], words: list[str], message: str
):
    code, error = complaint("report", "runs/a", *words)
    assert code == 2
    assert error.startswith(f"Error: {message}")
