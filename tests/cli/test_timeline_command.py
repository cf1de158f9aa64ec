"""`autoclave timeline`: shares of each step, a trace of the chosen ones, and what it says of steps not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.core import InputError
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.runs.timeline import write_timeline


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Steps 0 to 6, of 10 s; the trainer learns for `step` seconds, for the last second of which others are sampled."""
    write_timeline(tmp_path, StepTimeline(0, 0.0, 5.0, (Span(Role.EVALUATION, "step 0", 0.0, 5.0, 0),)))
    for step in range(1, 7):
        start = 10.0 * step
        learn = Span(Role.TRAINER, "learn", start, start + step, step)
        request = Span(Role.SAMPLER, "p#0", start + step - 1, start + 8, step)
        write_timeline(tmp_path, StepTimeline(step, start, start + 10, (learn, request)))
    return tmp_path


def shown(run: Path, *words: str) -> dict:
    ended = CliRunner().invoke(cli, ["timeline", str(run), "--json", *words], catch_exceptions=False)
    return json.loads(ended.output)


def test_shares_of_steps_and_of_all_together(run: Path):
    found = shown(run, "--steps", "2-3")
    assert found["steps"]["2"] == {
        "seconds": 10.0,
        "busy/sampler": pytest.approx(0.7),
        "busy/judge": 0.0,
        "busy/trainer": pytest.approx(0.2),
        "hidden/reward": None,
        "hidden/trainer": pytest.approx(0.5),
        "bottleneck": "sampler",
    }
    assert found["together"]["hidden/trainer"] == pytest.approx(2 / 5)


def test_the_table_has_a_line_for_each_step(run: Path):
    lines = CliRunner().invoke(cli, ["timeline", str(run)]).output.splitlines()
    assert [line.split()[0] for line in lines] == ["step", "1", "2", "3", "4", "5", "6", "together"]
    assert lines[2].split() == ["2", "10.00", "70.0%", "0.0%", "20.0%", "50.0%", "sampler"]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("3", [3]), ("2-4", [2, 3, 4]), ("5-", [5, 6]), ("1,5-9", [1, 5, 6]), ("0", [0]), ("2-3, 3-4", [2, 3, 4])],
)
def test_a_trace_of_the_chosen_steps(run: Path, chosen: str, expected: list[int]):
    found = shown(run, "--steps", chosen, "--out", str(run / "trace.json"))
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X" and event["name"].startswith("step ")]
    assert sorted({int(name.removeprefix("step ")) for name in names}) == expected
    assert found["spans"] == sum(2 if step else 1 for step in expected)


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ("x", "'x' must be a step or a range. Fix: write 3, 3-5"),
        ("3-x", "'3-x' must be a step or a range"),
        ("", "'' must be a step or a range"),
        ("9", "no step of 9 has a timeline; steps 0 to 6 do"),
        ("4-2", "no step of 4-2 has a timeline"),
    ],
)
def test_steps_without_a_timeline_are_an_error(run: Path, chosen: str, complaint: str):
    with pytest.raises(InputError, match=complaint):
        shown(run, "--steps", chosen)


def test_a_run_without_a_timeline_and_no_run_are_errors(tmp_path: Path):
    with pytest.raises(InputError, match=r"has no timeline\. Fix: give a run of `autoclave train`"):
        shown(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        shown(tmp_path / "none")
