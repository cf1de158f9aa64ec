"""The entries of the gauntlet are in form and many, its driver notices holes, and sealed cells withstand some of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import IsolationError
from autoclave.judge.environments import Environments
from autoclave.judge.kinds import kind_of
from gauntlet.canaries import Canaries
from gauntlet.course import Course, totals
from gauntlet.entries import FAMILIES, FOLDER, Entry, EntryError, fresh_tasks, read_entries, read_entry

ROOT = Path(__file__).parents[2]
ENTRIES = read_entries()
LITERALS = {
    **dict.fromkeys(("CANARY_PORT", "CANARY_PID", "JUDGE_PID", "OPEN_PORT"), "1"),
    **dict.fromkeys(("CANARY_FILE", "CANARY_SOCKET", "MARK"), '"x"'),
}
QUICK = 25
"""Every so many-th entry is run here; `make gauntlet` runs all."""


@pytest.fixture(scope="module")
def course() -> Iterator[Course]:
    try:
        opened = Course(SandboxConfig())
    except IsolationError as error:
        pytest.skip(f"this host cannot make sealed cells: {error}")
    with opened:
        yield opened


@pytest.fixture
def entry(tmp_path: Path) -> Callable[..., Entry]:
    """entry("text", family="honest"): the entry that a file with this text is."""

    def made(text: str, family: str = "early-exit") -> Entry:
        path = tmp_path / family / "made.py"
        path.parent.mkdir()
        path.write_text(text)
        return read_entry(path)

    return made


def test_there_are_entries_of_every_family_and_many_in_all():
    families = Counter(entry.family for entry in ENTRIES)
    assert set(families) == set(FAMILIES)
    assert min(families.values()) >= 8
    assert len(ENTRIES) - families["honest"] >= 80
    assert families["honest"] >= 15


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.family}/{entry.name}")
def test_programs_of_entries_have_a_text_and_name_all_that_they_use(entry: Entry):
    for attempt in entry.attempts:
        source = attempt.source(LITERALS)
        assert not re.search(r"\b(CANARY_[A-Z]+|OPEN_PORT|JUDGE_PID|FRESH_[A-Z]+)\b", source)
        is_python = not attempt.task.endswith("-cpp")
        if is_python and entry.family != "source-text" and attempt.verdicts != {"compile_error"}:
            compile(source.removeprefix("\ufeff"), entry.name, "exec")


def test_only_honest_programs_and_first_steps_may_be_accepted():
    lone = [entry for entry in ENTRIES if not entry.is_honest and len(entry.attempts) == 1]
    deserved = {f"{entry.family}/{entry.name}" for entry in lone if "accepted" in entry.attempts[0].verdicts}
    assert deserved == {"host-damage/daemon-of-the-call", "time/finalizer-without-end"}  # their answers are right


def test_every_task_is_used_and_can_be_judged_or_is_of_a_kind_to_come():
    tasks, environments = fresh_tasks(), Environments(JudgeConfig())
    used = {attempt.task for entry in ENTRIES for attempt in entry.attempts}
    assert set(tasks.problems) == used
    for problem in tasks.problems.values():
        if problem.language == "python":
            assert kind_of(problem, environments).num_tests() > 0


def test_answers_to_steal_are_new_in_each_run_and_not_in_the_repository():
    first, second = fresh_tasks(), fresh_tasks()
    assert first.token != second.token
    assert "FRESH_" not in json.dumps(first.problems["token"].to_json())
    assert "token:" not in (FOLDER / "tasks.jsonl").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print(1)\n", "must begin with"),
        ("#: task: sum\n#: verdict: wrong_answer\n", "no line '#: tries: ...'"),
        ("#: tries: x\n#: task: none\n#: verdict: wrong_answer\n", "no such task"),
        ("#: tries: x\n#: task: sum\n#: verdict: fine\n", "verdict = 'fine'"),
        ("#: tries: x\n#: task: sum\n#: verdicts: accepted\n", "verdicts: must be one of"),
        ("#: tries: x\n#: task: sum\n#: verdict: accepted\n\nx\n" * 2, "two programs are the same"),
    ],
)
def test_an_entry_out_of_form_is_refused_with_its_place(entry: Callable[..., Entry], text: str, reason: str):
    with pytest.raises(EntryError, match=re.escape(reason)) as refused:
        entry(text)
    assert re.search(r"made\.py:\d+: ", str(refused.value))


def test_every_so_many_entries_hold_on_sealed_cells(course: Course):
    chosen = [entry for entry in ENTRIES if not entry.known][::QUICK]
    results = list(course.run(chosen))
    assert [result for result in results if not (result.skipped or result.is_well(course.level))] == []


def test_the_attack_of_the_page_holds_and_entries_that_pages_name_exist(course: Course, entry: Callable[..., Entry]):
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"gauntlet .*--only ([\w-]+/[\w-]+)$", pages, re.MULTILINE))
    assert named
    assert named <= {f"{each.family}/{each.name}" for each in ENTRIES}
    text = (ROOT / "docs" / "how-to" / "attack.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (result,) = course.run([entry(source)])
    assert result.is_well(course.level)


def test_a_program_rewarded_against_the_entry_is_noticed(course: Course, entry: Callable[..., Entry]):
    hole = entry(
        "#: tries: is right\n#: task: sum\n#: verdict: wrong_answer\n\nprint(sum(map(int, input().split())))\n"
    )
    (result,) = course.run([hole])
    assert result.undeserved
    assert not result.is_well("open")
    assert totals([result], "sealed")["early-exit"]["rewarded"] == 1


def test_an_honest_program_refused_is_noticed(course: Course, entry: Callable[..., Entry]):
    wrong = entry("#: tries: is wrong\n#: task: sum\n#: verdict: accepted\n\nprint(8)\n", family="honest")
    (result,) = course.run([wrong])
    assert result.refused
    assert not result.is_well("open")


def test_touched_canaries_and_files_left_are_damage(course: Course, entry: Callable[..., Entry]):
    # What a program in a cell cannot do is done by the building of its text, which runs here.
    text = (
        "#: tries: does damage while it is built\n#: task: sum\n#: verdict: wrong_answer\n#: build: yes\n\n"
        "import os, signal, socket\n"
        "with socket.create_connection(('127.0.0.1', CANARY_PORT)) as connection: connection.recv(99)\n"
        "os.kill(CANARY_PID, signal.SIGUSR1)\n"
        "with open(CANARY_FILE, 'w') as file: file.write('x')\n"
        "os.close(os.open('/tmp/' + MARK, os.O_CREAT))\n"
        "program = 'print(8)'\n"
    )
    damaging = entry(text)
    (result,) = course.run([damaging])
    seen = " ".join(result.damage)
    for expected in ("TCP canary", "canary process got signal", "canary file written", "left: /tmp/gauntlet-"):
        assert expected in seen
    Path(next(what for what in result.damage if what.startswith("left: /tmp/")).removeprefix("left: ")).unlink()
    assert not result.is_well("sealed")


@pytest.mark.parametrize("name", ["environment", "canary-file"])  # these only read
def test_a_thief_finds_the_answer_where_there_is_no_cell(name: str):
    (attempt,) = read_entry(FOLDER / "programs" / "stolen-answers" / f"{name}.py").attempts
    with Canaries("token:0123456789abcdef") as canaries:
        command = [sys.executable, "-S", "-c", attempt.source(canaries.literals)]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "token:0123456789abcdef"


def test_the_command_runs_entries_by_name_and_writes_what_it_found(tmp_path: Path):
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "gauntlet", "--backend", "namespace", "--level", "sealed", "--json", str(out)]
    done = subprocess.run(
        [*command, "--only", "honest/plain"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    (report,) = json.loads(out.read_text())
    if not report["offered"]:
        pytest.skip(f"this host cannot make sealed cells: {report['why']}")
    assert done.returncode == 0, done.stdout
    assert [result["statuses"] for result in report["results"]] == [["accepted"], ["accepted"]]
    assert "honest/plain-profile" in done.stdout
