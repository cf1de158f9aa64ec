"""The examples of docs/reference/formats.md are true: they read, and judging them gives the verdicts shown."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import Problem, Status, Verdict
from autoclave.core.json import from_plain, to_plain

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
PROBLEMS, OTHER_PROBLEMS, PROGRAMS, VERDICTS, FAULT = re.findall(
    r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)


def without_measurements(verdicts: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in verdicts.splitlines()]
    for line in lines:
        line["tests"] = [{"index": test["index"], "status": test["status"]} for test in line["tests"]]
    return lines


def test_judging_the_examples_gives_the_verdicts_shown(tmp_path: Path):
    (tmp_path / "problems.jsonl").write_text(PROBLEMS)
    (tmp_path / "programs.jsonl").write_text(PROGRAMS)
    (command,) = re.findall(r"^    autoclave (judge .*)$", PAGE, re.MULTILINE)
    ended = subprocess.run(
        [sys.executable, "-m", "autoclave", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    given = (tmp_path / "verdicts.jsonl").read_text()
    assert without_measurements(given) == without_measurements(VERDICTS)


@pytest.mark.parametrize("line", (PROBLEMS + OTHER_PROBLEMS).splitlines(), ids=lambda line: json.loads(line)["id"])
def test_every_problem_shown_reads(line: str):
    assert Problem.from_json(json.loads(line)).to_json()["tests"]["kind"] == json.loads(line)["tests"]["kind"]


def test_every_kind_of_tests_is_shown():
    shown = {json.loads(line)["tests"]["kind"] for line in (PROBLEMS + OTHER_PROBLEMS).splitlines()}
    assert shown == {"stdin", "call", "check", "answer", "stored"}


@pytest.mark.parametrize("line", (VERDICTS + FAULT).splitlines())
def test_every_verdict_shown_has_all_fields_and_no_other(line: str):
    verdict = from_plain(Verdict, json.loads(line), "docs/reference/formats.md")
    assert to_plain(verdict) == json.loads(line)


def test_every_field_of_a_problem_is_explained():
    explained = re.findall(r"^\| `(\w+)` \|.*\|.*\|$", PAGE, re.MULTILINE)
    assert explained == [
        *("format", "id", "statement", "tests"),
        *(
            field.name
            for field in dataclasses.fields(Problem)
            if field.name not in ("format", "id", "statement", "tests")
        ),
    ]


def test_every_status_is_explained():
    table = PAGE[PAGE.index("| `status` | meaning |") :].partition("\n\n")[0]
    explained = re.findall(r"^\| `(\w+)` \| [^|]*\|$", table, re.MULTILINE)
    assert explained == ["status", *Status]  # the first is the head of the table


def test_all_checkers_profiles_and_extraction_rules_are_named():
    from autoclave.judge.comparison import CHECKERS
    from autoclave.judge.extraction import EXTRACTION_RULES
    from autoclave.judge.profiles import PROFILES

    assert [name for name in (*CHECKERS, *PROFILES, *EXTRACTION_RULES) if f"`{name}`" not in PAGE] == []


def test_the_page_names_every_format_of_a_file():
    command = ["git", "grep", "-ohE", r"autoclave-[a-z-]+/[0-9]+", "--", "src"]
    named = set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())
    authenticated = {"autoclave-checkpoint/1", "autoclave-record/1"}  # what the journal's keys sign, no files
    assert {name for name in named - authenticated if name not in PAGE} == set()
