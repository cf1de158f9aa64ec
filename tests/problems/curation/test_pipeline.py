"""A pipeline that is killed at any moment continues, and ends with equal bytes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import IncompleteError, read_problems
from autoclave.core.files import read_jsonl
from autoclave.problems.candidate import Origin, ProblemCandidate, SkippedRow
from autoclave.problems.curation.pipeline import drop_other_folders, run_stages
from autoclave.problems.curation.stage import Dropped, ReadableSource, Reading
from autoclave.problems.curation.training_set import (
    DROPPED,
    MANIFEST,
    PARTS,
    PROBLEMS,
    SourceRecord,
    write_training_set,
)
from autoclave.report.curation import write_report

from .conftest import ADD, candidate

MARK = "<b>bold</b>"


@dataclass
class Odd:
    """Drops candidates whose number is odd; counts how often it ran."""

    name: str = "odd"
    modulus: int = 2
    runs: list[int] = field(default_factory=list)
    notes: tuple[str, ...] = ("some numbers are even",)

    @property
    def settings(self) -> dict[str, Any]:
        return {"modulus": self.modulus}

    def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
        self.runs.append(1)
        for one in candidates:
            odd = int(one.problem.id.partition("-")[0]) % self.modulus
            yield Dropped.of(one, "odd", f"{one.problem.id} {MARK}") if odd else one


def source(label: str = "made", count: int = 6, **identity: object) -> ReadableSource:
    def read() -> Iterator[ProblemCandidate | SkippedRow]:
        for number in range(count):
            yield candidate(str(number), ADD, origin=Origin("layout", f"made.jsonl:{number + 1}"))
        yield SkippedRow(f"made.jsonl:{count + 1}", "no_tests", "it has none")

    return ReadableSource(label, {"count": count, **identity}, read)


def test_every_row_is_kept_or_has_a_reason(tmp_path: Path):
    results = run_stages(Reading([source()]), [Odd()], tmp_path)
    assert [(one.name, dict(one.num_kept), one.num_dropped) for one in results] == [
        ("read", {"made": 6}, {"made": {"no_tests": 1}}),
        ("odd", {"made": 3}, {"made": {"odd": 3}}),
    ]
    assert [one.problem.id for one in results[-1].kept] == ["0", "2", "4"]
    assert [one.origin.row for one in results[0].dropped()] == ["made.jsonl:7"]


def test_ids_of_two_sources_do_not_collide(tmp_path: Path):
    results = run_stages(Reading([source("a", 2), source("b", 2), source("c", 1)]), [], tmp_path)
    assert [(one.origin.set, one.problem.id) for one in results[0].kept] == [
        *(("a", "0"), ("a", "1"), ("b", "0-2"), ("b", "1-2")),
        ("c", "0-3"),
    ]


def test_only_changed_stages_and_later_ones_run_again(tmp_path: Path):
    first, second = Odd("first"), Odd("second", 4)
    run_stages(Reading([source()]), [first, second], tmp_path)
    run_stages(Reading([source()]), [first, second], tmp_path)
    assert (len(first.runs), len(second.runs)) == (1, 1)
    second.modulus = 3
    results = run_stages(Reading([source()]), [first, second], tmp_path)
    assert (len(first.runs), len(second.runs)) == (1, 2)
    run_stages(Reading([source(count=4)]), [first, second], tmp_path)
    assert (len(first.runs), len(second.runs)) == (2, 3)
    drop_other_folders(results, tmp_path)
    assert set(tmp_path.iterdir()) == {one.folder for one in results}


def test_a_stage_that_did_not_end_leaves_no_folder(tmp_path: Path):
    class Broken(Odd):
        def run(self, candidates: Iterable[ProblemCandidate]) -> Iterator[ProblemCandidate | Dropped]:
            yield next(iter(candidates))
            raise IncompleteError("some")

    with pytest.raises(IncompleteError):
        run_stages(Reading([source()]), [Broken()], tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(run_stages(Reading([source()]), [Odd()], tmp_path)[-1].num_kept.values()) == 3


def written(out: Path, work: Path) -> dict[str, bytes]:
    results = run_stages(Reading([source("b"), source("a")]), [Odd()], work)
    records = [SourceRecord(name, "layout", "made", "MIT", {"made.jsonl": "0" * 64}) for name in "ba"]
    manifest = write_training_set(out, results, records, [], {"name": "set"}, "0.1", {"2", "4-2"})
    write_report(out / "report.html", manifest, results)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_the_set_is_sorted_by_id_and_the_same_each_time(tmp_path: Path):
    found = written(tmp_path / "a", tmp_path / "work")
    assert found == written(tmp_path / "b", tmp_path / "elsewhere")
    assert [one.id for one in read_problems(tmp_path / "a" / PROBLEMS)] == ["0", "0-2", "2", "2-2", "4", "4-2"]
    dropped = [value for _, value in read_jsonl(tmp_path / "a" / DROPPED)]
    assert [(one["stage"], one["reason"]) for one in dropped] == [("read", "no_tests")] * 2 + [("odd", "odd")] * 6
    train, heldout = ([one.id for one in read_problems(tmp_path / "a" / name)] for name in PARTS)
    assert (train, heldout) == (["0", "0-2", "2-2", "4"], ["2", "4-2"])
    manifest = json.loads(found[MANIFEST])
    assert (manifest["problems"], manifest["heldout"]) == (6, 2)
    assert manifest["stages"][1] == {
        "name": "odd",
        "kept": {"a": 3, "b": 3},
        "dropped": {"a": {"odd": 3}, "b": {"odd": 3}},
        "notes": ["some numbers are even"],
    }


def test_the_page_shows_dropped_problems_as_text(tmp_path: Path):
    page = written(tmp_path / "out", tmp_path / "work")["report.html"].decode()
    assert "odd <b>6</b>" in page
    assert "some numbers are even" in page
    assert "1 &lt;b&gt;bold&lt;/b&gt;" in page
    assert MARK not in page


KILLED = """
import sys, os
sys.path.insert(0, {tests!r})
from pathlib import Path
import autoclave.core.files as files
import tests.problems.curation.test_pipeline as here
left = int(sys.argv[1])
real = {{name: getattr(os, name) for name in ("fsync", "rename", "replace", "open", "mkdir")}}
def counting(name):
    def call(*args, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return real[name](*args, **named)
    return call
for name in real:
    setattr(os, name, counting(name))
here.written(Path(sys.argv[2]), Path(sys.argv[3]))
"""


def test_killed_at_every_step_it_ends_with_the_same_bytes(tmp_path: Path):
    expected = written(tmp_path / "whole", tmp_path / "whole-work")
    program = KILLED.format(tests=str(Path(__file__).parents[3]))
    out, work = tmp_path / "out", tmp_path / "work"
    kills = 0
    for number in range(1, 400, 7):
        run = subprocess.run([sys.executable, "-c", program, str(number), out, work], capture_output=True, text=True)
        if run.returncode != -signal.SIGKILL:
            assert run.returncode == 0, run.stderr
            break
        kills += 1
    assert kills > 3
    assert written(out, work) == expected
    assert not [path for path in out.iterdir() if path.name not in expected]
