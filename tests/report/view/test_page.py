from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from autoclave.core import InputError
from autoclave.report.view import Request, write_view

HOSTILE = "</script></pre><script>alert(1)</script>"
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """Start tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def all(self, css_class: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.tags if css_class in (attributes.get("class") or "").split()]


def view(folder: Path, **words) -> str:
    return write_view(Request(folder, **words)).path.read_text("utf-8")


def texts(page: str) -> str:
    """What can be read, without markup."""
    body = page.partition("<body>")[2].partition("<script>")[0]
    spaced = re.sub(r"</(dt|dd|th|td)>", " ", body)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", spaced)).split())


@pytest.fixture
def run(record, rollout) -> Path:
    """Two steps; the second has a group that is partly accepted, one without a verdict, and one that was cut."""
    return record({
        1: [rollout("a", sample, "wrong_answer") for sample in range(2)],
        2: [
            rollout("a", 0, "accepted"),
            rollout("a", 1, "time_limit"),
            rollout("b", 0, None, trainer_log_probs=None),
            rollout("b", 1, "wrong_answer", mask_reason="overlong", finish_reason="length", advantage=None),
        ],
    })  # fmt: skip


# --- What shows ----------------------------------------------------------------------------------------------------


def test_every_rollout_shows_with_verdict_advantage_and_mask(run):
    page = view(run)
    shown = [
        (each["data-status"], each["data-mask"].strip(), each["data-advantage"]) for each in Page(page).all("rollout")
    ]
    assert shown == [
        ("wrong_answer", "none", "negative"),
        ("wrong_answer", "none", "negative"),
        ("accepted", "none", "positive"),
        ("time_limit", "none", "negative"),
        ("no_verdict", "no_verdict", "none"),
        ("wrong_answer", "overlong", "none"),
    ]
    said = texts(page)
    for part in ("not trained: overlong", "ended by length", "sandbox: no cell", "1 of 2 accepted", "6 of 6 rollouts"):
        assert part in said


def test_each_token_stands_alone_with_its_numbers(record, rollout):
    line = rollout("a", 0, response="print(3)")
    count = len(line["token_ids"])
    line |= {"sampler_log_probs": [-0.1] * count, "trainer_log_probs": [-0.1] * (count - 1) + [-0.8]}
    page = view(record({1: [line]}))
    (strip,) = Page(page).all("token-strip")
    assert len(strip["data-numbers"].split(";")) == count
    assert strip["data-numbers"].endswith(" -0.1 -0.8")
    assert '<i class="g3">&lt;end&gt;</i>' in page
    assert f"largest mismatches: token {count - 1} <end> −0.70 (sampler −0.10, trainer −0.80)" in texts(page)


def test_policy_versions_of_ranges_of_tokens_are_told(record, rollout):
    assert "version 3: tokens 0 to 5, version 4: tokens 5 to 8" in texts(
        view(record({5: [rollout("a", policy_versions=[[3, 0, 5], [4, 5, 8]])]}))
    )


def test_the_ledger_of_the_algorithm_shows_where_there_is_one(record, rollout):
    line = rollout(
        "a", ledger={"reward": 0.75, "in_baseline": False, "group_mean": 0.5, "group_std": None, "advantage": -0.25}
    )
    said = texts(view(record({1: [line]})))
    assert "advantage −0.25" in said
    assert "reward used 0.75 group mean 0.5 in group baseline no" in said
    assert "group deviation" not in said


def test_log_probs_after_top_p_are_said_to_be_so(record, rollout):
    said = texts(view(record({1: [rollout("a", log_prob_kind="processed")]})))
    assert "The sampler's log-probs are of its distribution after top-p" in said


def test_a_run_of_an_earlier_version_shows_its_text(record):
    said = texts(view(record({1: [{"step": 1, "group": 0, "response": "print(1)"}]})))
    assert "print(1)" in said
    assert "Tokens and their log-probs: not recorded." in said


def test_without_the_tokenizer_of_the_run_the_text_shows(run):
    shutil.rmtree(run / "start")
    assert "no start/tokenizer.json" in texts(view(run))


def test_long_responses_and_prompts_lose_their_middle(record, rollout):
    line = rollout("a") | {"response": "r" * 9001, "prompt": "p" * 9000, "token_ids": None}
    said = texts(view(record({1: [line]})))
    assert "[1,001 characters left out]" in said
    assert "[1,000 characters left out]" in said


def test_an_episode_shows_its_earlier_turns_and_what_was_observed(record, rollout):
    turns = [{"observed": "", "response": "print(3)"}, {"observed": "wrong answer <b>", "response": "print(4)"}]
    said = texts(view(record({1: [rollout("a") | {"turns": turns}, rollout("b") | {"turns": "damaged"}]})))
    places = [said.index(text) for text in ("turn 1", "print(3)", "observed", "wrong answer <b>", "turn 2, which")]
    assert places == sorted(places)


def test_an_episode_shows_calls_their_results_its_end_state_and_the_limit_that_ended_it(record, rollout):
    call = '<tool_call>{"name": "write", "arguments": {"path": "a.py", "content": "x <b>\\ny"}}</tool_call>'
    turns = [{"observed": "", "response": f"I write.\n{call}"}, {"observed": "2 lines", "response": "<tool_call>{"}]
    state = {
        "files": {"a.py": 9},
        "left_out": {"ln": "a link"},
        "changes": "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y <i>",
    }
    more = {"turns": turns, "end_state": state, "ended_by": "tool_errors", "tool_errors": 1}
    said = texts(view(record({1: [rollout("a") | more]})))
    order = ("I write.", "call of write", "path a.py", "x <b> y", "results of the calls", "2 lines", "turn 2")
    places = [said.index(text) for text in order]
    assert places == sorted(places)
    for shown in ("malformed call: the call has no end", "1 file", "a.py", "9 bytes", "left out: a link", "y <i>"):
        assert shown in said
    assert "tool errors" in said.partition("episode ended by")[2]


# --- What is chosen ------------------------------------------------------------------------------------------------


def test_above_the_limit_it_says_how_many_are_left_out_and_how_to_choose(run):
    said = texts(view(run, limit=4))
    assert "4 of 6 rollouts" in said
    assert "2 rollouts left out: --limit N shows more, --problem ID those of one problem" in said
    assert "left out" not in texts(view(run, limit=6))


def test_of_a_problem_all_steps_that_have_it_show(run):
    page = view(run, problems=("b",))
    assert [each["data-problem"] for each in Page(page).all("group")] == ["b"]
    assert "step 1" not in texts(page).partition("Rollouts")[0].replace("steps 1", "")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("bb", '--problem "bb": no rollout of it in step 1 to 2; did you mean b?'),
        ("zzz", '--problem "zzz": no rollout of it in step 1 to 2; known are a, b'),
    ],
)
def test_a_problem_that_is_not_there_is_named_with_those_that_are(run, problem, message):
    with pytest.raises(InputError) as error:
        write_view(Request(run, problems=(problem,)))
    assert str(error.value) == message


def test_of_many_problems_the_message_names_a_few(record, rollout):
    folder = record({1: [rollout(f"problem-{number}") for number in range(30)]})
    with pytest.raises(
        InputError, match=r"there are problem-0, problem-1, problem-2, problem-3, problem-4 and others$"
    ):
        write_view(Request(folder, problems=("x",)))


# --- Comparisons ---------------------------------------------------------------------------------------------------


def test_two_steps_are_compared_problem_by_problem(run):
    page = view(run, steps=(2,), against_step=1)
    assert [each["data-problem"] for each in Page(page).all("group")] == ["a"]
    assert [each["data-status"] for each in Page(page).all("pair")] == [
        "wrong_answer accepted",
        "wrong_answer time_limit",
    ]
    said = texts(page)
    assert "accepted A 0 of 2 → B 1 of 2" in said
    assert "0 problems only in A and 1 only in B are not shown" in said


def test_two_runs_are_compared_line_by_line(run, record, rollout):
    other = record({2: [rollout("a", 0, "wrong_answer", response="x = 1\nprint(9)")]}, "other")
    page = view(run, against=other)
    difference = page.partition('<pre class="difference">')[2].partition("</pre>")[0]
    assert re.findall(r'class="(\w+)">([^<]*)\n', difference) == [
        ("place", "@@ -1,2 +1 @@"),
        ("removed", "x = 1"),
        ("removed", "print(9)"),
        ("added", "print(0)"),
    ]
    assert "run against other" in texts(page)


def test_runs_without_a_common_problem_say_so(run, record, rollout):
    said = texts(view(run, against=record({2: [rollout("c")]}, "other")))
    assert "The two sides have no problem in common." in said


# --- The file ------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_and_runs_only_its_own_script(run):
    page = view(run)
    tags = Page(page).tags
    assert [name for _, attributes in tags for name in attributes if name in LOADING] == []
    assert not re.search(r"@import|url\(|https?://", page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_looking_needs_no_torch():
    script = "import autoclave.report.view, json, sys; print(json.dumps(list(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert {"torch", "transformers", "tensorboard"}.isdisjoint(json.loads(ended.stdout))


def test_the_same_request_gives_the_same_bytes(run):
    assert view(run) == view(run)


def test_the_page_goes_where_it_is_asked_to(run, tmp_path):
    written = write_view(Request(run), tmp_path / "pages" / "mine.html")
    assert written.path == tmp_path / "pages" / "mine.html"
    assert "</html>" in written.path.read_text("utf-8")
    assert not (run / "view.html").exists()


# --- Hostile text --------------------------------------------------------------------------------------------------


def hostile(line: dict) -> dict:
    words = ("item", "group", "prompt", "response", "finish_reason", "reason", "mask_reason", "log_prob_kind", "sample")
    verdict = line["verdict"] | {"message": HOSTILE, "level": HOSTILE, "problem_id": HOSTILE, "id": HOSTILE}
    return line | dict.fromkeys(words, HOSTILE) | {"verdict": verdict, "reward": HOSTILE, "tokens": HOSTILE}


def test_text_of_the_policy_is_never_markup(record, rollout):
    for name, words in (("with", {}), ("without", {"token_ids": None})):
        folder = record({1: [hostile(rollout("a", response=HOSTILE) | words)]}, name)
        page = view(folder)
        assert sum(tag == "script" for tag, _ in Page(page).tags) == 1
        assert HOSTILE in html.unescape(re.sub(r"</?i[^>]*>", "", page))


def test_hostile_text_is_no_markup_in_a_comparison(record, rollout):
    folder = record({
        step: [hostile(rollout("a", response=HOSTILE)) | {"response": f"{HOSTILE}\n{step}"}] for step in (1, 2)
    })  # fmt: skip
    page = view(folder, steps=(2,), against_step=1)
    assert sum(tag == "script" for tag, _ in Page(page).tags) == 1
    assert "&lt;script&gt;alert(1)" in page.partition('class="difference"')[2]


def test_quotes_do_not_leave_an_attribute(record, rollout):
    line = rollout(
        '" onclick="alert(1)', mask_reason='" onfocus="alert(1)', verdict=None, reason='"x" onload="alert(1)'
    )
    tags = Page(view(record({1: [line]}))).tags
    assert not [name for _, attributes in tags for name in attributes if name.startswith("on")]


def test_invisible_and_reordering_characters_are_spelled_out_also_within_tokens(record, rollout):
    text = "a\x00b\u202ec\u200bd\u00ade\U000e0041"
    for name, words in (("with", {}), ("without", {"token_ids": None})):
        page = re.sub(r"</?i[^>]*>", "", view(record({1: [rollout("a", response=text) | words]}, name)))
        assert "a\\x00b\\u202ec\\u200bd\\xade\\U000e0041" in page


def test_lone_surrogates_do_not_break_the_file(record, rollout):
    assert "a\\ud800b" in view(record({1: [rollout("a") | {"response": "a\ud800b", "token_ids": None}]}))
