"""`autoclave recipes` and recipes by name, from any folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.config import recipe
from autoclave.config.recipe import find_recipe, shipped_recipes
from autoclave.core import InputError

from .conftest import Ended

Autoclave = Callable[..., Ended]
RECIPES = Path(__file__).parents[2] / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))


def test_every_recipe_is_listed_with_its_hardware_and_what_it_is(autoclave: Autoclave):
    rows = json.loads(autoclave("recipes", "--json").stdout)
    assert [row["name"] for row in rows] == NAMES
    assert all(len(row["about"]) > 10 for row in rows)
    hardware = {row["name"]: row["hardware"] for row in rows}
    assert (hardware["deepcoder-14b"], hardware["demo"]) == ("32 x H100 SXM", "CPU")
    lines = autoclave("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert max(map(len, lines)) <= 150


def test_a_recipe_is_copied_once(autoclave: Autoclave, tmp_path: Path):
    assert autoclave("recipes", "copy", "demo", "--out", "own/mine.yaml").returncode == 0
    assert (tmp_path / "own/mine.yaml").read_bytes() == (RECIPES / "demo.yaml").read_bytes()
    (tmp_path / "own/mine.yaml").write_text("seed: 1\n")
    again = autoclave("recipes", "copy", "demo", "--out", "own/mine.yaml")
    assert (again.returncode, again.stderr) == (2, "Error: own/mine.yaml: exists. Fix: --out with another name\n")
    assert (tmp_path / "own/mine.yaml").read_text() == "seed: 1\n"


@pytest.mark.parametrize("given", ["demo", "demo.yaml", "recipes/demo.yaml"])
def test_a_command_takes_the_name_of_a_recipe_in_any_folder(autoclave: Autoclave, given: str):
    ended = autoclave("config", "show", given)
    assert ended.returncode == 0
    assert f"# {RECIPES / 'demo.yaml'}" in ended.stdout


def test_a_file_of_the_user_comes_before_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text("seed: 1\n")
    assert find_recipe("demo") == Path("demo")
    (tmp_path / "ppo-small").mkdir()
    assert find_recipe("ppo-small") == RECIPES / "ppo-small.yaml"


def test_an_unknown_name_suggests_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=r"^recipe demoo: no such file, and no recipe of Autoclave; did you mean demo\?"
    ):
        find_recipe("demoo")
    assert find_recipe("runs/absent.yaml") == Path("runs/absent.yaml")


def test_an_installed_package_has_its_recipes_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site-packages" / "autoclave"
    (package / "recipes").mkdir(parents=True)
    (package / "recipes" / "only.yaml").touch()
    monkeypatch.setattr(recipe, "__file__", str(package / "config" / "recipe.py"))
    assert shipped_recipes() == {"only": package / "recipes" / "only.yaml"}


def test_the_demo_trains_the_demo_recipe(autoclave: Autoclave, tmp_path: Path):
    ended = autoclave("demo", "--out", "mine", "steps=nothing")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith('Error: steps = "nothing"')
