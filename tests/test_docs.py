"""Pages link to pages and headings that exist, and code names pages that exist."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from autoclave.cli.main import cli
from benchmarks import metrics

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """Return the ids of a page: those that GitHub gives to its headings, and `<a id="...">`, old names of headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    of_titles = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
    return of_titles | set(re.findall(r'^<a id="(.+?)"></a>$', text, re.MULTILINE))


def broken_links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            yield f"{page.relative_to(ROOT)}: {target}"


def test_every_link_of_the_docs_leads_to_a_file_and_a_heading():
    assert [link for page in PAGES for link in broken_links(page)] == []


def test_every_page_named_in_the_repository_exists():
    command = ["git", "grep", "-ohE", r"\bdocs/[a-z/_-]+\.md", "--", ":!CHANGELOG.md", ":!tests/runtime"]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert named
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_page_is_reached_from_the_index():
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8"))
        found = {(page.parent / target).resolve() for target in targets} & set(PAGES)
        waiting += found - seen
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} <= seen


def test_the_judge_example_of_the_readme_prints_its_comment(capsys: pytest.CaptureFixture[str]):
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(source, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == source.rpartition("# ")[2].strip()


def test_the_act_example_of_the_readme_restores_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "project" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("kept")
    inode = notes.stat().st_ino
    text = PAGES[0].read_text(encoding="utf-8")
    (proposal,) = re.findall(r"^    echo '(.*)' > changes.jsonl$", text, re.MULTILINE)
    (tmp_path / "changes.jsonl").write_text(proposal + "\n")
    for line in re.findall(r"^    autoclave (act .*)$", text, re.MULTILINE):
        words = shlex.split(line, comments=True)
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        if words[1] == "run":
            assert not notes.exists()
    assert (notes.read_text(), notes.stat().st_ino) == ("kept", inode)


def test_the_page_of_metrics_is_rendered_from_its_data():
    page = metrics.PAGE.read_text(encoding="utf-8")
    assert metrics.rendered(page) == page


def test_pictures_are_those_of_their_generator():
    found = runpy.run_path(str(ROOT / "docs" / "_site" / "pictures.py"))["drawn"]()
    assert {path: path.read_text(encoding="utf-8") for path in found} == found


def test_licences_of_dependencies_are_permissive_or_explained():
    licences = runpy.run_path(str(ROOT / "docs" / "_site" / "licences.py"))
    found = licences["licences"]()
    assert {"click", "torch", "psycopg"} <= found.keys()
    assert licences["not_permissive"](found) == licences["OTHERS"].keys() & found.keys()
    assert licences["not_permissive"]({"a": "MIT AND GPL-3.0", "b": "", "c": "MIT"}) == {"a", "b"}


def test_commands_of_the_questions_have_their_options():
    lines = re.findall(r"^    autoclave (.*)$", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for words in map(shlex.split, lines):
        command: click.Command = cli
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found, lines
            command = found
        known = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("--")} <= known
