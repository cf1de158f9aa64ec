"""Packages say what they are, export what they promise, and the light ones stay light."""

from __future__ import annotations

import difflib
import importlib
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import autoclave
from tests import public_surface

SOURCE = Path(autoclave.__file__).parent
LIGHT = (
    "core",
    "config",
    "sandbox",
    "workspaces",
    "judge",
    "problems",
    "service",
    "report",
    "review",
    "runtime",
    "act",
)
HEAVY = {"torch", "transformers", "ray", "vllm"}
PACKAGES = sorted(
    ".".join(init.parent.relative_to(SOURCE.parent).parts)
    for init in SOURCE.rglob("__init__.py")
    if "guest" not in init.parts  # runs inside of cells
)
PUBLIC = [package for package in PACKAGES if package.count(".") == 1]


@pytest.mark.parametrize(
    "package",
    [
        *LIGHT,
        "compose.host",
        "compose.launch",
        "compose.service",
        "service.server",
        "service.client",
        "cli",
        "planning",
        "runs.folder",
        "workers.sampler.pool",
    ],
)
def test_what_computes_nothing_with_tensors_loads_no_heavy_library(package: str):
    script = f"import autoclave.{package}, json, sys; print(json.dumps(list(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert HEAVY.isdisjoint(json.loads(ended.stdout))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_what_it_is(package: str):
    assert (importlib.import_module(package).__doc__ or "").strip()


@pytest.mark.parametrize("package", PUBLIC)
def test_every_name_promised_is_there(package: str):
    module = importlib.import_module(package)
    promised = getattr(module, "__all__", [])
    assert [name for name in promised if not hasattr(module, name)] == []
    assert len(promised) == len(set(promised))


@pytest.mark.parametrize("package", PUBLIC)
def test_every_public_name_is_promised(package: str):
    module = importlib.import_module(package)
    promised = set(getattr(module, "__all__", []))
    assert all(hasattr(module, name) for name in promised)  # which imports those that are imported when asked for
    own = {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert own - {"annotations", "TYPE_CHECKING", "lazily"} == promised


def test_public_names_are_those_of_the_file():
    pinned = public_surface.FILE.read_text(encoding="utf-8").splitlines()
    changed = "\n".join(difflib.unified_diff(pinned, public_surface.surface(), "pinned", "here", n=0, lineterm=""))
    assert not changed, f"{changed}\nFix: restore these names, or accept the change: python -m tests.public_surface"


def test_no_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph("autoclave")
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()
