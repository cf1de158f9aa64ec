"""`autoclave plan`: for people and as JSON, and its mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.config import TrainConfig, dump, load, parse_override
from autoclave.core.timeline import Role, Span, StepTimeline
from autoclave.planning.schedule_plan import read_plan
from autoclave.runs.timeline import read_steps, write_timeline

DEMO = str(Path(__file__).parents[2] / "recipes" / "demo.yaml")
PIPELINED = (
    "schedule.name=one_off_pipeline",
    "pools.main.executor=spawn",
    "pools.samplers.executor=spawn",
    "workers.sampler=samplers",
)


def plan(*words: str) -> str:
    result = CliRunner().invoke(cli, ["plan", DEMO, *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_json_has_counts_and_bytes_by_phase():
    found = json.loads(plan("--json", "--steps", "7", "--prompt-tokens", "48"))
    assert (found["iterations"], found["samples"]) == (7, 512)
    assert found["lengths"] == {"prompt": 48, "response": 64, "evaluated": 0}
    (pool,) = found["pools"]
    names = [phase["name"] for phase in pool["phases"]]
    assert names == ["sample", "log-probs", "update", "optimizer step", "publish", "checkpoint", "evaluate"]
    assert all(isinstance(size, int) for phase in pool["phases"] for size in phase["parts"].values())


def test_settings_change_the_plan():
    assert "25,600" in plan()
    assert "51,200" in plan("group_size=16")


def test_check_lists_what_train_would_refuse_on_this_machine():
    settings = ("pools.main.memory_gb=0.01", "pools.main.executor=spawn", "pools.main.processes=256")
    starts = [line.partition(" =")[0] for line in plan("--check", *settings).splitlines() if "refuses" in line]
    assert starts == [f"train refuses it here: pools.main.{name}" for name in ("processes", "memory_gb")]
    assert [line.partition(" =")[0] for line in json.loads(plan("--check", "--json", *settings))["refusals"]] == [
        "pools.main.processes",
        "pools.main.memory_gb",
    ]
    assert "refuses" not in plan("--check")


def test_a_missing_model_is_bad_input(complaint: Callable[..., tuple[int, str]]):
    code, said = complaint("plan", DEMO, "model.path=./nowhere", "sft.steps=0")
    assert code == 2
    assert "nowhere/config.json: no such file" in said


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Two iterations of 8 problems with 8 samples: 4 s of sampling, 1 s of learning, 0.5 s of publish."""
    folder = tmp_path / "timed"
    words = ("problems_per_step=8", "steps=2")
    config = load(TrainConfig, Path(DEMO), [parse_override(word) for word in words]).config
    folder.mkdir()
    (folder / "config.yaml").write_text(dump(config))
    for step in (1, 2):
        start = 10.0 * step
        names = [f"p{item}#{sample}" for item in range(8) for sample in range(8)]
        requests = [Span(Role.SAMPLER, name, start, start + 4, step, "", {"tokens": 20}) for name in names]
        rewards = [Span(Role.JUDGE, name, start + 4, start + 4, step) for name in names]
        learn = Span(Role.TRAINER, "learn", start + 4, start + 5, step)
        publish = Span(Role.PUBLISH, "publish", start + 5, start + 5.5, step)
        write_timeline(folder, StepTimeline(step, start, start + 5.5, (*requests, *rewards, learn, publish)))
    return folder


def test_a_schedule_is_planned_from_the_timeline_of_a_run(timed: Path, tmp_path: Path):
    said = plan("problems_per_step=8", "--from", str(timed), "--devices", "2", "--out", str(tmp_path / "next"))
    assert "64: 320" in said  # 64 responses of 20 tokens in 4 s
    assert "recommended: asynchronous" in said
    found = read_plan(tmp_path / "next")
    assert found is not None
    (same,) = [each for each in found.candidates if each.name == "synchronous 1 shared"]
    assert same.seconds == pytest.approx(5.5)
    (apart,) = [each for each in found.candidates if each.name == "one_off_pipeline 1:1"]
    assert apart.seconds == pytest.approx(4.0)
    assert found.calibrated_s == 5.5


def test_without_a_recipe_the_settings_are_those_of_the_run(timed: Path):
    ended = CliRunner().invoke(cli, ["plan", "--from", str(timed), "--json"], catch_exceptions=False)
    found = json.loads(ended.output)
    assert found["work"]["problems_per_step"] == 8
    assert [(each["schedule"], each["split"]["is_shared"]) for each in found["candidates"]] == [("synchronous", True)]
    assert found == json.loads((timed / "plan.json").read_text())


def test_runs_without_a_timeline_are_bad_input(complaint: Callable[..., tuple[int, str]], timed: Path, tmp_path: Path):
    assert complaint("plan", DEMO, "--from", str(tmp_path))[0] == 2
    for path in (timed / "timeline").iterdir():
        path.unlink()
    code, said = complaint("plan", "--from", str(timed))
    assert code == 2
    assert "has no timeline of an iteration" in said


def test_planning_a_schedule_from_a_run_loads_no_tensor_library(timed: Path):
    program = (
        "import sys; from autoclave.cli.main import cli; "
        f"cli(['plan', '--from', {str(timed)!r}], standalone_mode=False); "
        "assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_a_timed_schedule_has_the_rates_of_its_run(timed: Path, tmp_path: Path):
    slower = tmp_path / "slower"
    shutil.copytree(timed, slower)
    for path in (slower / "timeline").iterdir():
        path.unlink()
    config = load(TrainConfig, timed / "config.yaml", [parse_override(word) for word in PIPELINED]).config
    (slower / "config.yaml").write_text(dump(config))
    for timeline in read_steps(timed, [1, 2]):
        spans = [replace(span, end=span.start + 8) if span.role is Role.SAMPLER else span for span in timeline.spans]
        write_timeline(slower, replace(timeline, end=timeline.start + 10, spans=tuple(spans)))
    plan("problems_per_step=8", "--from", str(timed), "--from", str(slower), "--devices", "2", "--out", str(tmp_path))
    found = read_plan(tmp_path)
    assert found is not None
    seconds = {each.name: each.seconds for each in found.candidates}
    assert seconds["synchronous 1 shared"] == pytest.approx(5.5)
    assert seconds["one_off_pipeline 1:1"] == pytest.approx(8.0)  # its own rate
    assert found.overlap_slowdown == pytest.approx((2 + 1) / 2)  # of sampling and of learning
    assert seconds["minibatch_pipeline 1:1"] == pytest.approx((4 + 1) * 1.5 + 0.5)  # all complete at once
