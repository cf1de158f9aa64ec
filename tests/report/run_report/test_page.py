from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from autoclave.core.errors import InputError
from autoclave.report.run_report import write_report

HOSTILE = "</script><script>alert(1)</script>"
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class _Page(HTMLParser):
    """Collects start tags with their attributes."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def _report(folder) -> str:
    return write_report(folder).read_text("utf-8")


def test_the_report_lies_in_the_run_folder_and_replaces_an_older_one(make_run):
    folder = make_run(steps=3)
    assert write_report(folder) == write_report(folder) == folder / "report.html"
    assert [path.name for path in folder.iterdir() if "partial" in path.name] == []


def test_the_same_folder_gives_the_same_bytes(make_run):
    folder = make_run(steps=12)
    assert _report(folder) == _report(folder)


def test_the_page_loads_nothing(make_run):
    html = _report(make_run())
    tags = _Page(html).tags
    links = [value for _, attributes in tags for name, value in attributes.items() if name in LOADING]
    assert links
    assert all(link and link.startswith("#") for link in links)
    assert not {"link", "iframe", "object", "embed", "img", "base"} & {tag for tag, _ in tags}
    assert not re.search(r"@import|url\(|https?://", html)


def test_the_one_script_is_the_one_that_the_policy_of_the_page_allows(make_run):
    html = _report(make_run(steps=10))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_links_of_the_contents_lead_somewhere(make_run):
    tags = _Page(_report(make_run(steps=2))).tags
    targets = {attributes["href"] for tag, attributes in tags if tag == "a"}
    assert targets == {f"#{attributes['id']}" for tag, attributes in tags if tag == "section"}


def _hostile_record() -> dict[str, object]:
    verdict = {"problem_id": HOSTILE, "id": HOSTILE, "status": "wrong_answer", "reward": 0.0, "failing_test": 0}
    verdict |= {"tests": [], "level": HOSTILE, "message": HOSTILE, "fault": None}
    texts = dict.fromkeys(("item", "group", "prompt", "response", "finish_reason", "reason", "mask_reason"), HOSTILE)
    return texts | {"step": 1, "sample": HOSTILE, "tokens": HOSTILE, "reward": HOSTILE, "verdict": verdict}


def test_text_of_the_policy_is_never_markup(make_run, write_rollouts, add_lines):
    folder = make_run(steps=3, is_finished=False)
    write_rollouts(folder, 1, [_hostile_record()])
    add_lines(folder / "metrics.jsonl", [{"kind": "train", "step": 4, f"status/{HOSTILE}": 1.0}])
    html = _report(folder)
    assert "&lt;script&gt;alert(1)" in html
    assert sum(tag == "script" for tag, _ in _Page(html).tags) == 1


def test_quotes_do_not_leave_an_attribute(make_run, write_rollouts):
    folder = make_run(steps=1)
    write_rollouts(folder, 1, [_hostile_record() | {"reason": '" onclick="alert(1)', "verdict": None}])
    assert not [name for _, attributes in _Page(_report(folder)).tags for name in attributes if name.startswith("on")]


def test_invisible_and_reordering_characters_are_spelled_out(make_run, write_rollouts):
    folder = make_run(steps=1)
    response = "a\x00b\u202ec\ud800d\r\ne"
    write_rollouts(folder, 1, [_hostile_record() | {"response": response}])
    assert "a\\x00b\\u202ec\\ud800d\ne" in _report(folder)


def test_a_run_that_just_began_says_what_is_missing(make_run):
    folder = make_run(steps=0, sft=False, evaluated=False, is_finished=False)
    (folder / "metrics.jsonl").unlink()
    (folder / "rollouts").rmdir()
    html = _report(folder)
    for said in (
        "still going, or cut off",
        "No evaluation on held-out problems is recorded yet.",
        "training steps, evaluations on held-out problems, the warm start",
        "No training steps recorded yet.",
        "No evaluation with families recorded yet.",
        "No rollouts recorded yet.",
        "summary.json is missing",
    ):
        assert said in html


@pytest.mark.parametrize("words", [{"sft": False}, {"evaluated": False}, {"is_finished": False}, {"steps": 1}])
def test_any_part_can_be_missing(make_run, words):
    assert "</html>" in _report(make_run(**({"steps": 20} | words)))


def test_a_rollout_with_little_in_it_shows(make_run, write_rollouts):
    folder = make_run(steps=1)
    write_rollouts(folder, 1, [{"step": 1, "group": 0, "response": "print(1)"}])
    (folder / "summary.json").write_text("{}")
    assert "<code>print(1)</code>" in _report(folder)


def test_a_line_cut_by_a_kill_is_not_spoken_of(make_run):
    folder = make_run(steps=20, is_finished=False)
    before = _report(folder)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 21, "rew')
    assert _report(folder) == before


def test_early_and_late_rollouts_are_shown_in_the_same_number(make_run, write_rollouts):
    folder = make_run(steps=30)
    write_rollouts(folder, 30, [_hostile_record() | {"group": str(group)} for group in range(3)])
    html = _report(folder)
    early, late = html.split("Late: step 30")
    assert "Early: step 10" in early
    assert early.count('<article class="card group">') == late.count('<article class="card group">') == 3


def test_the_isolation_of_an_unfinished_run_comes_from_its_verdicts(make_run):
    assert "<dt>Isolation</dt><dd>sealed</dd>" in _report(make_run(steps=10, is_finished=False))


def test_every_setting_of_the_configuration_shows(make_run):
    html = _report(make_run(steps=1))
    for key, value in (("tiny.hidden_size", "96"), ("time_limit_range", "6.0, 12.0"), ("mask_overlong", "true")):
        assert f'<th scope="row">{key}</th><td>{value}</td>' in html


def test_families_show_before_and_after(make_run):
    html = _report(make_run())
    row = html.split('<th scope="row">fold</th>')[1].split("</tr>")[0]
    assert re.findall(r">([\d.]+%)<", row) == ["21.7%", "45.3%", "23.2%", "48.5%"]  # 0.31 and 0.6465, x 0.7 and x 0.75


def test_a_folder_that_is_no_run_is_refused_and_left_alone(tmp_path):
    with pytest.raises(InputError, match=r"config\.yaml is missing"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_alerts_and_rollbacks_are_shown_as_text(make_run):
    folder = make_run(steps=3)
    alert = {
        "kind": "alert",
        "step": 2,
        "name": "kl_limit",
        "seen": HOSTILE,
        "rule": "r",
        "fix": "m",
        "action": "rollback",
    }
    rollback = {"kind": "rollback", "step": 2, "name": "kl_limit", "to_step": 1}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f"{json.dumps(alert)}\n{json.dumps(rollback)}\n")
    html = _report(folder)
    assert "rolled back to step 1" in html
    assert HOSTILE not in html
    assert "&lt;script&gt;alert(1)" in html
