"""A release has one version, and is refused where the tree or the changelog is not ready."""

from __future__ import annotations

import importlib.metadata
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import autoclave

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "release.py"
RELEASE = runpy.run_path(str(SCRIPT))
CHANGES = "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [1.2.3] - 2026-01-01\n\n- New.\n\n## [1.2.2]\n\n- Old.\n"


@pytest.fixture
def ready(tmp_path: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """ready(): what `release.py ready` says of a repository of version 1.2.3."""
    (tmp_path / "src/autoclave").mkdir(parents=True)
    (tmp_path / "src/autoclave/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    command = [sys.executable, str(SCRIPT), "ready"]
    return lambda: subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_a_clean_tree_with_a_section_for_its_version_can_be_released(ready):
    assert (ready().returncode, ready().stdout) == (0, "1.2.3 can be released\n")


def test_what_is_not_committed_or_not_in_the_changelog_is_not_released(ready, tmp_path: Path):
    (tmp_path / "src/autoclave/__init__.py").write_text('__version__ = "1.2.4"\n')
    refused = ready()
    assert refused.returncode == 1
    assert "src/autoclave/__init__.py" in refused.stderr
    assert "CHANGELOG.md: no section for 1.2.4. Fix:" in refused.stderr


def test_the_notes_are_the_section_of_the_version_alone():
    assert RELEASE["section"](CHANGES, "1.2.3") == "- New."
    assert RELEASE["section"](CHANGES, "1.2") == ""


def test_the_version_is_written_in_one_place():
    assert importlib.metadata.version("autoclave") == autoclave.__version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"] == ["version"]
    named = re.compile(r"autoclave(?:-judge|-train)?[:-](\d+\.\d+\.\d+)")
    pages = [*(ROOT / "docs").rglob("*.md"), *(path for path in (ROOT / "deploy").rglob("*") if path.is_file())]
    found = {version for page in pages for version in named.findall(page.read_text(encoding="utf-8"))}
    assert found == {autoclave.__version__}


@pytest.mark.parametrize("name", RELEASE["IMAGES"].values())
def test_an_image_installs_extras_that_exist_and_starts_a_command_that_exists(name: str):
    from autoclave.cli.main import cli

    content = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    (extras,) = re.findall(r"'/source\[(.+)\]'", content)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert "USER 10001" in content
    lists = [json.loads(each) for each in re.findall(r"^(?:ENTRYPOINT|CMD) (.+)$", content, re.MULTILINE)]
    assert lists[0][0] == "autoclave"
    assert [word for words in lists for word in words][1] in cli.list_commands(click.Context(cli))
