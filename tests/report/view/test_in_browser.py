"""The page in a real browser: what the script does, and that nothing else happens."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from autoclave.report.view import Request, write_view
from tests.browser import Browser, headless

pytestmark = pytest.mark.timeout(240)
SHOWN = "[...document.querySelectorAll('.rollout')].filter(e => e.checkVisibility()).length"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Browser]:
    with headless(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def page(record, rollout) -> Path:
    return write_view(Request(record({
        1: [
            rollout("a", 0, "accepted"),
            rollout("a", 1, "wrong_answer", response="needle"),
            rollout("b", 0, "accepted", mask_reason="overlong", advantage=None, response=HOSTILE),
        ],
        2: [rollout("a", 0, "time_limit", prompt="Find the HAYSTACK.")],
    }))).path  # fmt: skip


def choose(browser: Browser, name: str, value: str) -> int:
    """How many rollouts show after a choice."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelector('.controls').elements[{name!r}]; field.value = {value!r};"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    return browser.evaluate(SHOWN)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("step", "step 1", 3),
        ("problem", "b", 1),
        ("status", "accepted", 2),
        ("mask", "none", 3),
        ("advantage", "negative", 2),
        ("text", "NEEDLE", 1),
        ("text", "haystack", 1),
        ("text", "nowhere", 0),
    ],
)
def test_a_filter_leaves_what_fits(browser: Browser, page: Path, name: str, value: str, expected: int):
    browser.open(page)
    assert browser.evaluate(SHOWN) == 4
    assert choose(browser, name, value) == expected
    assert browser.evaluate("document.querySelector('output').textContent") == f"{expected} of 4"
    assert browser.evaluate("document.querySelector('.nothing').checkVisibility()") == (expected == 0)


def test_answers_to_alignment_samples_are_chosen_by_task_and_reason(browser: Browser, record, rollout):
    alignment_sample = {
        "problem_id": "p",
        "test": 0,
        "program": HOSTILE,
        "entry": "f",
        "input": "f(3)",
        "variables": {"n": "3"},
    }
    words = {"task": "execution_semantics", "verdict": None, "alignment_sample": alignment_sample}
    browser.open(write_view(Request(record({1: [
        rollout("a", 0, "accepted", task="code_generation"),
        rollout("b", 0, **words, reason="exact", reward=1.0),
        rollout("b", 1, **words, reason="wrong", reward=0.0),
    ]}))).path)  # fmt: skip
    assert choose(browser, "task", "execution_semantics") == 2
    assert choose(browser, "reason", "exact") == 1
    assert choose(browser, "task", "code_generation") == 0
    assert choose(browser, "reason", "") == 1
    assert choose(browser, "task", "") == 3
    assert choose(browser, "status", "accepted") == 1  # no verdict, no status
    assert browser.evaluate("document.title") == "demo – Autoclave rollouts"


def test_filters_add_up_and_a_key_clears_them(browser: Browser, page: Path):
    browser.open(page)
    choose(browser, "status", "accepted")
    assert choose(browser, "problem", "a") == 1
    browser.press("x")
    assert browser.evaluate(f"new Promise(done => setTimeout(() => done({SHOWN})))") == 4


def test_keys_go_from_rollout_to_rollout_and_open_them(browser: Browser, page: Path):
    here = "[...document.querySelectorAll('.rollout')].indexOf(document.activeElement.closest('.rollout'))"
    browser.open(page)
    browser.press("j", "j")
    assert browser.evaluate(here) == 1
    was_open = browser.evaluate("document.activeElement.closest('.rollout').open")
    browser.press("o")
    assert browser.evaluate("document.activeElement.closest('.rollout').open") != was_open
    browser.press("k")
    assert browser.evaluate(here) == 0


def test_keys_are_text_while_searching(browser: Browser, page: Path):
    browser.open(page)
    browser.press("/", "j", "x")
    assert browser.evaluate("document.querySelector('.controls input').value") == "jx"


def test_a_token_tells_its_numbers_when_pointed_at(browser: Browser, page: Path):
    browser.open(page)
    browser.point_at(".token-strip i")
    title = browser.evaluate("document.querySelector('.token-strip i').title")
    assert title.splitlines()[1] == "sampler -0.5 (probability 0.607)"
    assert title.splitlines()[3] == "mismatch 0.0 nats"


def test_nothing_is_loaded_and_nothing_hostile_runs(browser: Browser, page: Path):
    browser.open(page)
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    complaints = [event for event in browser.events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
    assert asked == [page.resolve().as_uri()]
    assert complaints == []
    assert browser.evaluate("document.title") == "demo – Autoclave rollouts"


def test_without_a_match_the_page_still_works(browser: Browser, record, rollout):
    folder = record({step: [rollout(f"only-{step}")] for step in (1, 2)})
    browser.open(write_view(Request(folder, against_step=1)).path)
    assert browser.evaluate(SHOWN) == 0
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
