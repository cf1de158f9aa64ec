"""`autoclave config show`: every setting and where it comes from; `config import`: settings of other frameworks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml
from click.testing import CliRunner

from autoclave.cli.config import FRAMEWORKS
from autoclave.cli.main import cli
from autoclave.config.frameworks import frameworks

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


def test_the_text_output_equals_the_json_output():
    lines = [line.split("  # ") for line in show(str(DEMO)).splitlines()]
    assert ['name = "demo"', str(DEMO)] in [[setting.rstrip(), origin] for setting, origin in lines]


def test_the_settings_of_a_recipe_are_shown():
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


def test_a_closed_pipe_gives_no_traceback():
    command = f'"{sys.executable}" -m autoclave config show | head -n 1'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr == ""


TOML = """\
max_steps = 20
[model]
name = "Qwen/Qwen3-0.6B"
[orchestrator]
batch_size = 128
group_size = 16
typo = 3
"""


def test_import_writes_a_recipe_that_show_reads_and_prints_what_differs(tmp_path: Path):
    given, recipe = tmp_path / "rl.toml", tmp_path / "recipe.yaml"
    given.write_text(TOML)
    result = CliRunner().invoke(cli, ["config", "import", str(given), "--out", str(recipe)], catch_exceptions=False)
    assert "Means something else here:\n- " in result.output
    assert "- orchestrator.typo = 3" in result.output
    settings = json.loads(show(str(recipe), "--json"))
    assert settings["problems_per_step"]["value"] == 8
    assert settings["problems_per_step"]["origin"] == str(recipe)


def test_import_prints_the_recipe_with_the_report_as_comments(tmp_path: Path):
    given = tmp_path / "rl.toml"
    given.write_text(TOML)
    output = CliRunner().invoke(cli, ["config", "import", str(given)], catch_exceptions=False).output
    assert "# - orchestrator.typo = 3" in output
    assert yaml.safe_load(output)["group_size"] == 16


def test_import_as_json_has_settings_and_every_part_of_the_report(tmp_path: Path):
    given = tmp_path / "settings"
    given.write_text("x --orchestrator.group_size 4 --orchestrator.batch_size 8 --odd 1")
    words = ["config", "import", str(given), "--from", "prime-rl", "--json"]
    found = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).output)
    assert found["from"].startswith("prime-rl")
    assert (found["settings"]["group_size"], found["settings"]["problems_per_step"]) == (4, 2)
    assert found["unknown"] == ["odd = 1"]
    assert {"to_set", "differs", "missing"} < set(found)


def test_the_choices_of_from_are_the_frameworks_of_the_table():
    assert list(frameworks()) == list(FRAMEWORKS)
