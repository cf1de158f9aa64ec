"""The documentation site builds without warnings, needs no network, and can be searched without a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.browser import headless

ROOT = Path(__file__).parents[1]
AXE = ROOT / ".oauth-server/node_modules/axe-core/axe.min.js"  # of `make setup-services`
REFERENCE = ("cli", "settings", "http", "python")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return folder


def test_every_page_of_the_docs_is_in_the_navigation(site: Path):
    index = (site / "index.html").read_text(encoding="utf-8")
    pages = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r'href="([\w./-]+\.html)"', index))
    assert {page for page in pages if "reference/algorithms" not in page and "tutorials" not in page} <= linked | {
        "index.html"
    }


def test_the_reference_has_every_command_setting_and_public_name(site: Path):
    commands, settings, requests, names = (
        (site / f"reference/{name}.html").read_text(encoding="utf-8") for name in REFERENCE
    )
    assert "autoclave act undo" in commands
    assert "problems_per_step" in settings
    assert "Problems (prompts) per step." in settings
    assert "POST /v1/jobs" in requests
    assert 'id="jobrequest"' in requests
    assert 'id="autoclave.core.Rollout"' in names
    assert 'id="autoclave.act.session"' in names


def test_no_page_loads_anything_from_elsewhere(site: Path):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|iframe)[^>]+src="([^"]+)"|<link[^>]+rel="stylesheet"[^>]+href="([^"]+)"', page.read_text()
        )
        assert [each for pair in loaded for each in pair if re.match(r"https?:|//", each)] == [], page


def test_a_search_works_on_a_page_that_was_opened_as_a_file(site: Path, tmp_path: Path):
    with headless(tmp_path) as browser:
        browser.open(f"{(site / 'how-to' / 'act.html').as_uri()}?q=savepoint")
        deadline = time.monotonic() + 60
        while not (found := browser.evaluate("document.querySelectorAll('.md-search-result__item').length")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert found > 1


@pytest.mark.parametrize("page", ["index", "reference/settings", "how-to/act"])
def test_axe_finds_nothing_serious(site: Path, tmp_path: Path, page: str):
    with headless(tmp_path) as browser:
        browser.open((site / f"{page}.html").as_uri())
        browser.evaluate(AXE.read_text(encoding="utf-8") + ";0")
        found = browser.evaluate(
            "axe.run().then(found => found.violations.filter(each => ['serious', 'critical'].includes(each.impact))"
            ".map(each => each.id + ' ' + each.nodes[0].html))"
        )
    assert found == []
