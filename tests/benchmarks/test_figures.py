"""The figures on the pages are those of the data file, and what is older than its code says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import figures
import pytest

ENTRIES = figures.read_entries(figures.ROOT)
PAGE = (
    "# Results\n\n<!-- figures cost -->\nTook:\n\n| what | ms |\n| --- | --- |\n| a test | 1.08 |\n<!-- /figures -->\n"
)


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True).stdout


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")
    return git(folder, "rev-parse", "--short", "HEAD").strip()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a page whose block was just adopted."""
    git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Name\n")
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / "docs" / "results.md").write_text(PAGE)
    (tmp_path / figures.DATA).write_text("{}\n")
    commit(tmp_path)
    run(tmp_path, monkeypatch, "--adopt", "cost")
    entries = figures.read_entries(tmp_path)
    entries["cost"] |= {"command": "python judge.py", "machine": "2 cores", "paths": ["code.py"]}
    figures.write_entries(tmp_path, entries)
    return tmp_path


def run(root: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["figures.py", *words])
    return figures.main(root)


def test_every_page_says_what_the_data_says():
    assert [*figures.missing_fields(ENTRIES), *figures.differences(figures.ROOT, ENTRIES)] == []


def test_every_entry_names_code_that_is_there_and_stands_on_one_page():
    missing = [path for entry in ENTRIES.values() for path in entry["paths"] if not (figures.ROOT / path).exists()]
    assert missing == []
    shown = "".join(page.read_text() for page in figures.pages(figures.ROOT))
    assert [key for key in ENTRIES if shown.count(f"<!-- figures {key} -->") != 1] == []


def test_a_body_is_the_same_after_rendering_and_parsing():
    for entry in ENTRIES.values():
        if not entry.get("values"):
            assert figures.text_of({"body": figures.parsed(figures.text_of(entry, ENTRIES))}, {}) == figures.text_of(
                entry, ENTRIES
            )


def test_a_number_changed_on_a_page_is_found_and_written_back(root: Path, monkeypatch):
    assert run(root, monkeypatch, "--check") == 0
    page = root / "docs" / "results.md"
    page.write_text(PAGE.replace("1.08", "1.07"))
    assert run(root, monkeypatch, "--check") == 1
    run(root, monkeypatch, "--write")
    assert page.read_text() == PAGE


def test_a_table_outside_of_a_block_is_found(root: Path, monkeypatch):
    page = root / "docs" / "results.md"
    page.write_text(f"{PAGE}\n| what | ms |\n| --- | --- |\n| another | 2.5 |\n")
    assert run(root, monkeypatch, "--check") == 1


def test_an_entry_without_its_command_is_found(root: Path, monkeypatch):
    entries = figures.read_entries(root)
    entries["cost"]["command"] = ""
    figures.write_entries(root, entries)
    assert run(root, monkeypatch, "--check") == 1


def test_a_value_that_two_pages_quote_is_written_once(root: Path, monkeypatch):
    entries = figures.read_entries(root)
    entries["cost"]["values"] = {"test": "1.08"}
    entries["again"] = {**entries["cost"], "body": ["It is [[cost/test]] ms.\n"]}
    figures.write_entries(root, entries)
    (root / "README.md").write_text("<!-- figures again -->\n<!-- /figures -->\n")
    run(root, monkeypatch, "--write")
    assert "It is 1.08 ms." in (root / "README.md").read_text()


def test_a_figure_whose_code_changed_since_is_marked_and_values_stay_checked(root: Path, monkeypatch):
    page = root / "docs" / "results.md"
    (root / "other.py").write_text("2\n")
    commit(root)
    assert run(root, monkeypatch, "--check", "--age") == 0
    (root / "code.py").write_text("2\n")
    old = figures.read_entries(root)["cost"]["commit"]
    commit(root)
    assert run(root, monkeypatch, "--check") == 0  # a commit that touches code needs no rendering
    assert run(root, monkeypatch, "--check", "--age") == 1  # a release does
    assert run(root, monkeypatch, "--write") == 0
    assert f"*Measured at commit {old}; changed since then: `code.py`.*\n<!-- /figures -->" in page.read_text()
    assert run(root, monkeypatch, "--check") == run(root, monkeypatch, "--check", "--age") == 0


def test_marks_stay_as_they_are_where_history_is_missing(root: Path, monkeypatch, capsys):
    (root / "code.py").write_text("2\n")
    commit(root)
    run(root, monkeypatch, "--write")
    written = (root / "docs" / "results.md").read_text()
    entries = figures.read_entries(root)
    entries["cost"]["commit"] = "0123abc"
    figures.write_entries(root, entries)
    assert run(root, monkeypatch, "--write") == run(root, monkeypatch, "--check", "--age") == 0
    assert (root / "docs" / "results.md").read_text() == written
    assert "lacks commit 0123abc" in capsys.readouterr().out
