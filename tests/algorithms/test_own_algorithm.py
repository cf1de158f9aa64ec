"""An algorithm of another package, found by its entry points: the one in examples/, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import ExchangeableAdvantage, GaeAdvantageConfig, GroupSettings

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm"
BUILD = """
import torch
from autoclave.algorithms import build_algorithm
from autoclave.config import TrainConfig, load, parse_override
settings = ["algorithm.name=damped", "algorithm.negative_weight=0.25"]
config = load(TrainConfig, None, map(parse_override, settings)).config
algorithm = build_algorithm(config.algorithm)
columns = {"rewards": torch.tensor([1.0, 0.0]), "group": torch.tensor([0, 0]), "row": torch.tensor([0, 1]),
           "in_loss": torch.tensor([True, True])}
high, low = algorithm.prepare(columns)["advantages"].tolist()
print(algorithm.name, round(low / high, 6))
"""


def install(folder: Path, entry_points: dict[str, dict[str, str]]) -> None:
    """What an installer leaves behind of a package whose code is elsewhere on the path."""
    info = folder / "damped-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: damped\nVersion: 0.1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(EXAMPLE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    install(tmp_path, tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"])
    return tmp_path


def test_the_example_is_chosen_by_name_like_ours(installed: Path):
    shown = run(installed, "-m", "autoclave", "config", "show", "--algorithm", "damped", "group_size=4")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "negative_weight" in shown.stdout


SHARED = """
from autoclave.algorithms import build_algorithm
from damped.settings import DampedConfig
given = {"mask_overlong": True, "include_masked_in_baseline": True, "correction": {"name": "truncated"}}
algorithm = build_algorithm(DampedConfig(**given))
print([mask.__name__ for mask in algorithm.filters], algorithm.include_masked_in_baseline, algorithm.correction is None)
"""


def test_settings_that_all_algorithms_have_apply_without_code_of_its_own(installed: Path):
    built = run(installed, "-c", SHARED)
    assert (built.stdout, built.stderr) == ("['mask_no_verdict', 'mask_overlong'] True False\n", "")


@pytest.mark.parametrize("bases", [(GroupSettings, ExchangeableAdvantage), (ExchangeableAdvantage, GroupSettings)])
def test_an_exchanged_estimator_decides_about_groups_whatever_the_order_of_the_bases(bases: tuple[type, ...]):
    both = type("Both", bases, {"__annotations__": {"name": Any}, "name": "both"})
    assert both().compares_group
    assert not both(advantage=GaeAdvantageConfig()).compares_group


def test_its_mistakes_are_named_like_ours(installed: Path):
    shown = run(installed, "-m", "autoclave", "config", "show", "--algorithm", "damped", "algorithm.clip=0.1")
    assert shown.returncode == 2
    assert "algorithm.clip: no such setting; damped does not use it (grpo, dr_grpo" in shown.stderr
    alone = run(installed, "-m", "autoclave", "config", "show", "--algorithm", "damped", "group_size=1")
    assert "group_size = 1: damped compares rollouts of one problem" in alone.stderr


def test_it_may_be_imported_before_ours(installed: Path):
    built = run(installed, "-c", f"from damped.settings import DampedConfig{BUILD}")
    assert (built.stdout, built.stderr) == ("damped -0.25\n", "")


def test_its_advantages_are_its_own(installed: Path):
    built = run(installed, "-c", BUILD)
    assert (built.stdout, built.stderr) == ("damped -0.25\n", "")


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("damped.nothing:DampedConfig", "No module named 'damped.nothing'"),
        ("damped.settings:Nothing", "has no attribute 'Nothing'"),
        ("damped.settings:Literal", "it is not a class that derives from AlgorithmSettings"),
        ("autoclave.config:GrpoConfig", 'its field `name` must be Literal["damped"]'),
    ],
)
def test_settings_that_cannot_be_used_are_left_out_with_a_warning(tmp_path: Path, value: str, complaint: str):
    install(tmp_path, {"autoclave.algorithm_settings": {"damped": value}})
    shown = run(tmp_path, "-m", "autoclave", "config", "show", "--algorithm", "damped")
    assert shown.returncode == 2
    warning = shown.stderr.splitlines()[0]
    assert warning.startswith(f"entry point autoclave.algorithm_settings: damped = {value} is left out")
    assert complaint in warning
    assert 'algorithm.name = "damped": no such choice' in shown.stderr


def test_a_built_in_name_cannot_be_taken(tmp_path: Path):
    install(tmp_path, {"autoclave.algorithm_settings": {"grpo": "autoclave.config:GrpoConfig"}})
    shown = run(tmp_path, "-m", "autoclave", "config", "show", "--algorithm", "grpo")
    assert shown.returncode == 0
    assert "the name grpo is taken" in shown.stderr


@pytest.mark.parametrize(
    ("algorithms", "message"),
    [
        ({}, "Fix: install the package that has the entry point damped in autoclave.algorithms"),
        (
            {"damped": "damped.nothing:damped"},
            "entry point autoclave.algorithms: damped = damped.nothing:damped cannot be",
        ),
        ({"damped": "builtins:id"}, "algorithm.name = damped: its entry point gives"),
    ],
)
def test_settings_without_a_working_algorithm_are_an_error(tmp_path: Path, algorithms: dict[str, str], message: str):
    settings = {"damped": "damped.settings:DampedConfig"}
    install(tmp_path, {"autoclave.algorithm_settings": settings, "autoclave.algorithms": algorithms})
    shown = run(tmp_path, "-m", "autoclave", "config", "show", "--algorithm", "damped")
    assert shown.returncode in (2, 3)
    assert message in shown.stderr
