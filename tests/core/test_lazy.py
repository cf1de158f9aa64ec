"""What packages import when it is asked for: the same names as type checkers see, and not before."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("package", ["autoclave.config", "autoclave.core", "autoclave.judge"])
def test_every_public_name_is_found_where_type_checkers_find_it(package: str):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__ or "").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "") > package]
    places = {alias.name: node.module for node in imports for alias in node.names if node.module}
    for name in module.__all__:
        assert getattr(module, name) is getattr(importlib.import_module(places[name]), name)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


@pytest.mark.parametrize("package", ["autoclave.config", "autoclave.core", "autoclave.judge"])
def test_no_module_has_the_name_of_something_that_is_asked_for(package: str):
    """It would be found in its place once it is imported."""
    module = importlib.import_module(package)
    modules = {path.stem for path in Path(module.__file__ or "").parent.glob("*.py")}
    assert not modules & set(module.__all__)


def test_importing_the_judge_loads_names_and_errors_only():
    program = (
        "import sys, typing, importlib; before = {*sys.modules, '__future__'}; import autoclave.judge\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    of_core = [f"autoclave.core{module}" for module in ("", ".closing", ".errors", ".lazy")]
    assert loaded == ["autoclave", *of_core, "autoclave.judge"]


def test_the_protocol_of_a_judge_loads_no_settings():
    program = (
        "import sys; from autoclave.judge import Judge, JudgeJob\n"
        "print([name for name in ('autoclave.config.base', 'autoclave.sandbox') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_judge_starts_without_what_only_training_needs():
    program = (
        "import sys; from autoclave.judge import LocalJudge\n"
        "print([name for name in ('numpy', 'torch', 'yaml', "
        "'autoclave.config.training', 'autoclave.config.complaints', 'autoclave.core.rollout') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
