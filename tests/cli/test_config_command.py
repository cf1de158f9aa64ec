"""`autoclave config show`: every setting, its value and where it comes from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml
from click.testing import CliRunner

from autoclave.cli.main import cli

DEMO = Path(__file__).parents[2] / "recipes" / "demo.yaml"


def show(*words: str) -> str:
    result = CliRunner().invoke(cli, ["config", "show", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_json_has_value_and_origin_of_every_setting():
    settings = json.loads(show(str(DEMO), "--seed", "7", "group_size=4", "--json"))
    assert settings["seed"] == {"value": 7, "origin": "--seed"}
    assert settings["group_size"] == {"value": 4, "origin": "command line"}
    assert settings["name"] == {"value": "demo", "origin": str(DEMO)}
    assert settings["sandbox.minimum_level"] == {"value": "sealed", "origin": "default"}


def test_the_lines_for_people_say_the_same():
    lines = [line.split("  # ") for line in show(str(DEMO)).splitlines()]
    assert ['name = "demo"', str(DEMO)] in [[setting.rstrip(), origin] for setting, origin in lines]


def test_what_a_recipe_sets_is_what_is_shown():
    settings = json.loads(show(str(DEMO), "--json"))
    recipe = yaml.safe_load(DEMO.read_text())
    assert settings["sft.steps"]["value"] == recipe["sft"]["steps"]
    assert settings["steps"]["value"] == recipe["steps"]


def test_settings_may_come_before_and_after_the_recipe_and_options():
    one = show("group_size=4", str(DEMO), "--seed", "7", "--json")
    other = show("--seed", "7", str(DEMO), "--json", "group_size=4")
    assert one == other


def test_a_short_option_resets_the_choice_and_settings_apply_to_it():
    settings = json.loads(show(str(DEMO), "algorithm.clip=0.3", "--algorithm", "grpo", "--json"))
    block = {path: entry["value"] for path, entry in settings.items() if path.startswith("algorithm.")}
    assert (block["algorithm.name"], block["algorithm.clip"]) == ("grpo", 0.3)
    assert "algorithm.clip_upper" not in block


def test_a_reader_that_goes_away_is_no_traceback():
    command = f'"{sys.executable}" -m autoclave config show | head -n 1'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == ""
