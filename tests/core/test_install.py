"""Messages name an install command that works for the reader's own installation."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from autoclave.core import install
from autoclave.core.install import install_command

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Recorded:
    def __init__(self, origin: object) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return json.dumps(self.origin) if self.origin else None


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file://FOLDER", "dir_info": {"editable": True}}, 'pip install -e "FOLDER[train]"'),
        ({"url": "file://FOLDER", "dir_info": {}}, 'pip install "FOLDER[train]"'),
        ({"url": "file://FOLDER/a%20b.whl", "archive_info": {}}, 'pip install "FOLDER/a b.whl[train]"'),
        (
            {"url": "https://git.example/a.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            'pip install "autoclave[train] @ git+https://git.example/a.git@12ab"',
        ),
        ({"url": "file:///gone/a.whl"}, 'pip install "autoclave[train] @ git+URL" with the URL of your clone'),
        (None, 'pip install "autoclave[train] @ git+URL" with the URL of your clone'),
    ],
)
def test_the_command_installs_from_where_the_installation_came_from(
    origin: object, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a b.whl").touch()
    recorded = json.loads(json.dumps(origin).replace("FOLDER", str(tmp_path)))
    monkeypatch.setattr(install, "distribution", lambda name: Recorded(recorded))
    assert install_command("train") == command.replace("FOLDER", str(tmp_path))


def test_without_metadata_the_command_leaves_the_url_to_the_reader(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise install.PackageNotFoundError(name)

    monkeypatch.setattr(install, "distribution", missing)
    assert install_command("train").startswith('pip install "autoclave[train] @ git+URL"')


def test_every_extra_that_the_code_names_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"""install_command\(["']([a-z-]+)["']\)""", source)}
    assert named
    assert named <= EXTRAS.keys()


PAGES = [
    path
    for name in ("src", "docs", "deploy", "examples", "recipes", "gauntlet", "README.md", "CONTRIBUTING.md", "Makefile")
    for path in [ROOT / name, *(ROOT / name).rglob("*")]
    if path.is_file()
    and path.suffix in (".py", ".md", ".yaml", ".yml", ".sh", ".j2", ".toml", ".ipynb", "")
    and path.name != "_hook"
]
BY_NAME = re.compile(
    r"""\b(install|uv add|poetry add)( (?!into |from )\S+)*? ["'`]?autoclave(\[[^\]]*\])?(?! ?@)(["'`\s;,.)]|$)"""
)


def test_no_page_or_message_installs_autoclave_by_a_name_on_an_index():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in PAGES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_NAME.search(line)
    ]
    assert found == []


def test_no_package_of_ours_asks_an_index_for_autoclave():
    projects = [tomllib.loads(path.read_text()) for path in (ROOT / "examples").rglob("pyproject.toml")]
    assert projects
    assert [name for each in projects for name in each["project"]["dependencies"] if name.startswith("autoclave")] == []


def test_every_extra_that_a_page_installs_exists():
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES if path.suffix == ".md")
    named = re.findall(r"install [^\n]*?(?:autoclave|\.)\[([a-z0-9,-]+)\]", text)
    assert named
    assert {extra for group in named for extra in group.split(",")} <= EXTRAS.keys()
