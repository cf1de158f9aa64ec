"""The page in a real browser: keys, live changes, an undo; and nothing that agents wrote runs."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, headless

from .conftest import HOSTILE, Reviewed

pytestmark = pytest.mark.timeout(240)
AXE = Path(__file__).parents[2] / ".oauth-server/node_modules/axe-core/axe.min.js"
ROWS = "document.querySelectorAll('.row').length"
NOTES = {"do": "write", "path": "notes.txt", "content": "one\n2\nthree\n"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with headless(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def until(browser: Browser, script: str, expected: Any = True) -> None:
    """Wait until a script in the page has a value."""
    deadline = time.monotonic() + 20
    while (found := browser.evaluate(script)) != expected:
        assert time.monotonic() < deadline, (script, found)
        time.sleep(0.05)


def opened(browser: Browser, reviewed: Reviewed, rows: int) -> None:
    browser.open(reviewed.url)
    until(browser, ROWS, rows)


def test_nothing_that_agents_wrote_runs_and_nothing_else_is_loaded(browser: Browser, shared: Reviewed):
    opened(browser, shared, 4)
    for number in range(4):
        browser.evaluate(f"document.querySelectorAll('.row button')[{number}].click()")
        until(browser, f"document.querySelectorAll('.row button')[{number}].ariaCurrent", "true")
        until(browser, "document.querySelectorAll('.change').length > 0")
    browser.press("g")
    until(browser, "document.querySelector('dialog').open")
    browser.press("Escape")
    assert browser.evaluate("document.title") == "project – Autoclave review"
    assert browser.evaluate("document.querySelectorAll('img[onerror], script:not([src])').length") == 0
    assert HOSTILE in browser.evaluate("document.querySelector('select[name=session]').textContent")
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert all(url.startswith((str(shared.client.base_url), "blob:", "data:,")) for url in asked)
    complaints = [event for event in browser.events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
    assert complaints == []


def test_an_empty_history_says_so(browser: Browser, reviewed: Reviewed):
    browser.open(reviewed.url)
    until(browser, "document.querySelector('#root').textContent", str(reviewed.root))
    assert browser.evaluate("document.querySelector('#empty').textContent").startswith("Nothing was done here yet")
    until(browser, "document.querySelector('#audit').textContent.endsWith('as they were written')")


def test_markup_cannot_even_be_made_in_the_page(browser: Browser, shared: Reviewed):
    opened(browser, shared, 4)
    making = "document.body.innerHTML = '<b>x</b>'"
    script = f"(() => {{ try {{ {making}; return 'made'; }} catch (error) {{ return error.name; }} }})()"
    assert browser.evaluate(script) == "TypeError"


def test_both_images_of_a_change_are_shown(browser: Browser, shared: Reviewed):
    opened(browser, shared, 4)
    browser.evaluate(
        "[...document.querySelectorAll('.row button')].find((each) => each.textContent.includes('logo.png')).click()"
    )
    until(browser, "[...document.querySelectorAll('.sides img')].map((each) => each.naturalWidth).join()", "8,8")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("text", "LOGO.PNG", 1),
        ("state", "standing", 4),
        ("state", "undone", 0),
        ("session", HOSTILE, 4),
        ("guarantee", "none", 0),
    ],
)
def test_a_filter_leaves_what_fits(browser: Browser, shared: Reviewed, name: str, value: str, expected: int):
    opened(browser, shared, 4)
    browser.evaluate(
        f"(() => {{ const field = document.querySelector('#filters').elements[{name!r}]; field.value = {value!r};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    assert browser.evaluate(ROWS) == expected
    assert browser.evaluate("document.querySelector('#filters output').textContent") == f"{expected} of 4 actions"


def test_an_action_is_opened_and_undone_with_its_dependents_and_redone_by_keys(browser: Browser, reviewed: Reviewed):
    reviewed.run(NOTES, {"do": "append", "path": "notes.txt", "content": "four\n"})
    opened(browser, reviewed, 2)
    browser.press("j", "j")
    browser.evaluate("document.activeElement.click()")
    until(browser, "document.querySelector('.diff .add')?.textContent", "2+2")
    browser.press("u")
    until(browser, "document.querySelector('dialog').open")
    assert browser.evaluate("document.querySelectorAll('dialog li').length") == 2
    assert "depends on it" in browser.evaluate("document.querySelector('dialog li').textContent")
    assert browser.evaluate("document.activeElement.textContent") == "Undo 2 actions"
    browser.evaluate("document.activeElement.click()")
    until(browser, "document.querySelector('#message').textContent.startsWith('Undone: 2 actions')")
    assert (reviewed.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    until(browser, "document.querySelectorAll('.row.undone').length", 2)
    browser.evaluate("[...document.querySelectorAll('#message button')][0].click()")
    until(browser, "document.querySelector('#message').textContent.startsWith('Redone: 2 actions')")
    assert (reviewed.root / "notes.txt").read_text() == "one\n2\nthree\nfour\n"


def test_a_conflict_must_be_decided_before_the_undo(browser: Browser, reviewed: Reviewed):
    reviewed.run(NOTES, {**NOTES, "path": "other.txt"})
    for name in ("notes.txt", "other.txt"):
        (reviewed.root / name).write_text("edited\n")
    opened(browser, reviewed, 2)
    browser.press("j", "x", "j", "x", "u")
    until(browser, "document.querySelector('dialog').open")
    assert browser.evaluate("document.querySelector('dialog .main').disabled")
    browser.evaluate(
        "(() => { const choice = document.querySelector('dialog select'); choice.value = 'force';"
        " choice.dispatchEvent(new Event('change')); document.querySelector('dialog .main').click(); })()"
    )
    until(browser, "document.querySelector('#message').textContent.startsWith('Undone: 2 actions')")
    assert (reviewed.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
    assert not (reviewed.root / "other.txt").exists()


def test_actions_of_a_running_session_appear_by_themselves_and_the_focus_stays(browser: Browser, reviewed: Reviewed):
    (first,) = reviewed.run(NOTES)
    opened(browser, reviewed, 1)
    browser.press("j")
    with reviewed.session("late") as session:
        session.propose({**NOTES, "path": "other"})
        until(browser, ROWS, 2)
    assert browser.evaluate("document.activeElement.closest('.row').dataset.action") == first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_any_view(browser: Browser, shared: Reviewed, scheme: str):
    if not AXE.exists():
        pytest.skip("axe-core is not installed; `make setup-services` installs it")
    browser._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    opened(browser, shared, 4)
    browser.evaluate(AXE.read_text(encoding="utf-8") + ";0")

    def violations() -> list[str]:
        found = "axe.run().then(found => found.violations.map(each => each.id + ' ' + each.nodes[0].html))"
        return browser.evaluate(found)

    assert violations() == []
    browser.evaluate("document.querySelectorAll('.row button')[0].click()")
    until(browser, "document.querySelectorAll('.change').length > 0")
    assert violations() == []
    for key in ("u", "g", "?"):
        browser.press(key)
        until(browser, "document.querySelector('dialog').open")
        assert violations() == [], key
        browser.press("Escape")


def test_an_end_of_the_server_is_told(browser: Browser, shared: Reviewed):
    opened(browser, shared, 4)
    browser._call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    try:
        until(browser, "document.querySelector('#live').textContent", "the server has ended")
    finally:
        browser._call(
            "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )
    until(browser, "document.querySelector('#live').textContent", "live")
