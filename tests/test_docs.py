"""Pages link to pages and headings that exist, and code names pages that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the ids that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


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
