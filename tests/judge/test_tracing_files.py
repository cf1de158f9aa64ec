"""Files of traces: which programs get a line, faults that do not stop the rest, and files that do not fit."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import DataError, JudgeFault, Status, Trace, TraceStatus, Verdict
from autoclave.core.json import to_plain
from autoclave.judge import JudgeJob, trace_file

CHECK = {"kind": "check", "entry_point": "f", "source": "def check(c): assert c() == 1", "invocation": "check(f)"}
STDIN = {"kind": "stdin", "cases": [{"input": "1\n", "output": "2\n"}]}


def lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join(json.dumps(to_plain(value)) + "\n" for value in objects))
    return path


class FaultyTracer:
    """A judge that can trace all but the programs whose source is `fault`."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, int]] = []

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        self.requested.append((job.id, index))
        future: Future[Trace] = Future()
        if job.program.source == "fault":
            future.set_exception(JudgeFault("no trace: the cell died"))
        else:
            problem_id = job.problem.id
            future.set_result(
                Trace(problem_id=problem_id, id=job.id, test=index, status=TraceStatus.FINISHED, entry="f")
            )
        return future


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problems file, programs of every kind of end, and their verdicts."""
    problem = {"format": "autoclave-problem/1", "statement": "s"}
    lines(tmp_path / "problems", problem | {"id": "in", "tests": STDIN}, problem | {"id": "check", "tests": CHECK})
    given: list[tuple[str, str, Verdict]] = [
        ("in", "x", Verdict.of(Status.WRONG_ANSWER, id="wrong", failing_test=0)),
        ("in", "x", Verdict.of(Status.RUNTIME_ERROR, id="raises", failing_test=0)),
        ("in", "fault", Verdict.of(Status.WRONG_ANSWER, id="faulty", failing_test=3)),
        ("check", "x", Verdict.of(Status.WRONG_ANSWER, id="checked", failing_test=0)),
        ("in", "x", Verdict.of(Status.ACCEPTED, id="right")),
        ("in", "x", Verdict.of(Status.WRONG_ANSWER, id="last", failing_test=1)),
    ]
    lines(tmp_path / "programs", *({"problem_id": of, "source": text, "id": v.id} for of, text, v in given))
    lines(tmp_path / "verdicts", *(verdict for _, _, verdict in given))
    return tmp_path


def paths(folder: Path) -> list[Path]:
    return [folder / name for name in ("problems", "programs", "verdicts", "traces")]


def test_wrong_answers_get_a_line_each_in_order_and_a_fault_is_one(folder: Path):
    tracer: Any = FaultyTracer()
    counts = trace_file(tracer, *paths(folder), pending_limit=2)
    written = [json.loads(line) for line in (folder / "traces").read_text().splitlines()]
    assert counts == {"finished": 2, "no_trace": 1, "not_traceable": 1}
    assert [(line["id"], line["test"], line["status"]) for line in written] == [
        ("wrong", 0, "finished"),
        ("faulty", 3, None),
        ("last", 1, "finished"),
    ]
    assert written[1]["fault"] == {"kind": "sandbox", "detail": "no trace: the cell died"}
    assert tracer.requested == [("wrong", 0), ("faulty", 3), ("last", 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda verdicts: verdicts[1:], "must be 'wrong', that of"),
        (lambda verdicts: verdicts[:-1], "verdicts: "),
        (lambda verdicts: ["{}", *verdicts[1:]], "verdicts:1: "),
    ],
)
def test_verdicts_of_other_programs_are_refused_and_nothing_is_written(folder: Path, change: Any, message: str):
    verdicts = (folder / "verdicts").read_text().splitlines()
    (folder / "verdicts").write_text("\n".join(change(verdicts)) + "\n")
    tracer: Any = FaultyTracer()
    with pytest.raises(DataError, match=message):
        trace_file(tracer, *paths(folder))
    assert not (folder / "traces").exists()
