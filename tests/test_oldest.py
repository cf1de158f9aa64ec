"""The oldest versions that pyproject.toml allows import everything and train: `make test-oldest`."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import autoclave
from tests.test_pins import TESTED_ENDS

pytestmark = [pytest.mark.oldest, pytest.mark.timeout(900)]
NOT_IMPORTED = (
    "autoclave.sandbox.guest",
    "autoclave.workspaces.guest",
    "autoclave.judge.runners",
    "autoclave.__main__",
    "autoclave.rollout.vllm_parts",
)
"""What runs inside of cells, the program itself, and what needs vLLM."""


def test_the_versions_are_the_oldest():
    found = {name: version(name) for name in TESTED_ENDS if not name.startswith("vllm")}
    assert {name: TESTED_ENDS[name][0] for name in found} == {
        name: text.rpartition(".")[0] for name, text in found.items()
    }


def test_every_module_imports():
    names = [module.name for module in pkgutil.walk_packages(autoclave.__path__, "autoclave.")]
    imported = [name for name in names if not name.startswith(NOT_IMPORTED)]
    script = f"import importlib\nfor name in {imported}: importlib.import_module(name)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("executor", ["inline", "ray"])
def test_the_demo_in_miniature_trains(executor: str, tmp_path: Path):
    settings = [
        "steps=2", "problems_per_step=8", "sft.steps=60", "evaluation.every=0", "evaluation.final_samples=1",
        "problems.heldout=200", "problems.train=200", "model.device=cpu", f"pools.main.executor={executor}",
    ]  # fmt: skip
    recipe = Path(__file__).parents[1] / "recipes" / "demo.yaml"
    command = [sys.executable, "-m", "autoclave", "train", str(recipe), *settings, "--out", "run", "--json"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"AUTOCLAVE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["steps"] == 2
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()
