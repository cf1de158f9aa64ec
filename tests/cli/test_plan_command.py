"""`autoclave plan`: for people and as JSON, and its mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from autoclave.cli.main import cli

DEMO = str(Path(__file__).parents[2] / "recipes" / "demo.yaml")


def plan(*words: str) -> str:
    result = CliRunner().invoke(cli, ["plan", DEMO, *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_json_has_counts_and_bytes_by_phase():
    found = json.loads(plan("--json", "--steps", "7", "--prompt-tokens", "48"))
    assert (found["iterations"], found["samples"], found["lengths"]) == (7, 512, {"prompt": 48, "response": 64})
    (pool,) = found["pools"]
    assert [phase["name"] for phase in pool["phases"]] == ["sample", "log-probs", "update", "optimizer step", "publish"]
    assert all(isinstance(size, int) for phase in pool["phases"] for size in phase["parts"].values())


def test_settings_change_the_plan():
    assert "25,600" in plan()
    assert "51,200" in plan("group_size=16")


def test_a_model_that_is_not_there_is_bad_input(complaint: Callable[..., tuple[int, str]]):
    code, said = complaint("plan", DEMO, "model.path=./nowhere", "sft.steps=0")
    assert code == 2
    assert "nowhere/config.json: no such file" in said
