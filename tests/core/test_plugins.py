"""Entry points of installed packages: what is loaded, and what is reported when one cannot be."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from autoclave.config import EngineSettings, TransformersEngineConfig
from autoclave.config.plugins import with_plugins
from autoclave.core import HostError
from autoclave.core.plugins import find_plugin, plugin_names

Install = Callable[..., None]
SETTINGS = """
from typing import Literal
from autoclave.config import EngineSettings

class MineConfig(EngineSettings):
    name: Literal["{name}"] = "{name}"
    size: int = 3
"""
_numbers = itertools.count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """install("mine", "group", "object", source): a package with one module and one entry point, `mine`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(name: str, group: str, attribute: str, source: str, *, entry: str = "mine") -> None:
        module, info = f"{name}_{next(_numbers)}", tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (tmp_path / f"{module}.py").write_text(source)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry} = {module}:{attribute}\n")

    return installed


def test_the_object_of_an_entry_point_is_found_by_its_name(install: Install):
    install("mine", "autoclave.tests", "thing", "thing = 7")
    assert plugin_names("autoclave.tests") == ["mine"]
    assert find_plugin("autoclave.tests", "mine", "task.name") == 7


def test_a_missing_plugin_is_reported_with_what_exists_and_the_fix(install: Install):
    install("mine", "autoclave.tests", "thing", "thing = 7")
    with pytest.raises(HostError) as raised:
        find_plugin("autoclave.tests", "others", "task.name", ["ours"])
    assert str(raised.value) == (
        'task.name = "others": no installed package has it; there are mine, ours. '
        "Fix: install the package that has the entry point others in autoclave.tests"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('no device')", "RuntimeError: no device"),
        ("def f(:", "SyntaxError"),
        ("", "AttributeError"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_reported_with_its_entry_point_and_package(
    install: Install, source: str, reason: str
):
    install("mine", "autoclave.tests", "thing", source)
    with pytest.raises(HostError) as raised:
        find_plugin("autoclave.tests", "mine", "task.name")
    assert 'task.name = "mine": entry point autoclave.tests: mine = mine_' in str(raised.value)
    assert reason in str(raised.value)
    assert str(raised.value).endswith("Fix: repair or uninstall the package mine")


def test_two_packages_with_one_name_are_an_error(install: Install):
    install("mine", "autoclave.tests", "thing", "thing = 7")
    install("yours", "autoclave.tests", "thing", "thing = 8")
    with pytest.raises(HostError, match=r"the package (mine|yours) and the package (mine|yours) have it"):
        find_plugin("autoclave.tests", "mine", "task.name")


def test_a_package_cannot_take_the_name_of_one_of_ours(install: Install):
    install("mine", "autoclave.problems", "thing", "thing = 7", entry="synthetic")
    assert (
        find_plugin("autoclave.problems", "synthetic", "problems.name").__module__ == "autoclave_environments.synthetic"
    )


def choice() -> TypeAdapter[EngineSettings]:
    return TypeAdapter(with_plugins("autoclave.tests", (TransformersEngineConfig,), EngineSettings))


def test_settings_of_a_plugin_are_typed_and_closed(install: Install):
    install("mine", "autoclave.tests", "MineConfig", SETTINGS.format(name="mine"))
    found = choice()
    assert found.validate_python({"name": "mine", "size": 4}).size == 4
    assert found.validate_python({"name": "transformers"}) == TransformersEngineConfig()
    for wrong in ({"size": "4"}, {"sizes": 4}):
        with pytest.raises(ValidationError):
            found.validate_python({"name": "mine", **wrong})


@pytest.mark.parametrize(
    ("attribute", "source", "entry", "reason"),
    [
        ("Nothing", "", "mine", "has no attribute 'Nothing'"),
        ("MineConfig", "raise RuntimeError('broken')", "mine", "broken"),
        ("MineConfig", "class MineConfig: pass", "mine", "not a class that derives from EngineSettings"),
        ("MineConfig", SETTINGS.format(name="other"), "mine", 'must be Literal["mine"] = "mine"'),
        (
            "MineConfig",
            'from autoclave.config import EngineSettings\nclass MineConfig(EngineSettings):\n    name: str = "mine"',
            "mine",
            'its field `name` must be Literal["mine"] = "mine"',
        ),
        ("MineConfig", "from autoclave.config import NoSuch", "mine", "must derive from EngineSettings"),
        ("MineConfig", SETTINGS.format(name="transformers"), "transformers", "the name transformers is taken"),
    ],
)
def test_settings_that_cannot_be_used_are_left_out_with_a_warning(
    install: Install, caplog: pytest.LogCaptureFixture, attribute: str, source: str, entry: str, reason: str
):
    install("mine", "autoclave.tests", attribute, source, entry=entry)
    found = choice()
    assert re.fullmatch(".*is left out: .*Fix: repair or uninstall the package mine", caplog.messages[0])
    assert reason in caplog.messages[0]
    assert found.validate_python({"name": "transformers"}) == TransformersEngineConfig()
