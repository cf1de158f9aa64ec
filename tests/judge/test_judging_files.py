"""Files of programs: order, format, errors before anything runs, and faults that do not stop the rest."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from autoclave.core import DataError, Fault, InputError, Problem, Status, Verdict
from autoclave.judge import judge_file
from autoclave.judge.files import ProblemIndex


def lines(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


def problem(name: str, output: str = "7\n", **fields: Any) -> dict[str, Any]:
    tests = {"kind": "stdin", "cases": [{"input": "3 4\n", "output": output}]}
    return {"format": "autoclave-problem/1", "id": name, "statement": "s", "tests": tests} | fields


SUM = "print(sum(map(int, input().split())))"


def test_one_verdict_per_line_in_order_and_in_the_documented_form(judge, tmp_path: Path):
    problems = lines(tmp_path / "problems.jsonl", problem("a"), problem("b", "12\n"))
    programs = lines(
        tmp_path / "programs.jsonl",
        {"problem_id": "b", "source": SUM},
        {"problem_id": "a", "response": f"```python\n{SUM}\n```", "id": "mine"},
        {"problem_id": "a", "response": "I give up."},
        {"problem_id": "a", "source": "("},
    )
    counts = judge_file(judge, problems, programs, tmp_path / "out" / "verdicts.jsonl")
    verdicts = [json.loads(line) for line in (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()]
    assert counts == {"wrong_answer": 1, "accepted": 1, "bad_format": 1, "compile_error": 1}
    assert [verdict["id"] for verdict in verdicts] == ["b#1", "mine", "a#3", "a#4"]
    assert [verdict["status"] for verdict in verdicts] == ["wrong_answer", "accepted", "bad_format", "compile_error"]
    assert list(verdicts[1]) == (
        ["problem_id", "id", "status", "reward", "failing_test", "tests", "level", "message", "fault"]
    )
    assert list(verdicts[1]["tests"][0]) == ["index", "status", "cpu_s", "wall_s", "memory_mb"]
    assert (verdicts[1]["reward"], verdicts[1]["level"], verdicts[1]["fault"]) == (1.0, "sealed", None)
    assert (verdicts[2]["reward"], verdicts[2]["tests"], verdicts[2]["failing_test"]) == (0.0, [], None)


@pytest.mark.parametrize("target", ["problems.jsonl", "programs.jsonl"])
def test_verdicts_never_replace_what_was_given(judge, tmp_path: Path, target: str):
    problems = lines(tmp_path / "problems.jsonl", problem("a"))
    programs = lines(tmp_path / "programs.jsonl", {"problem_id": "a", "source": SUM})
    with pytest.raises(InputError, match="give another file for the verdicts"):
        judge_file(judge, problems, programs, tmp_path / target)
    assert "verdict" not in (tmp_path / target).read_text()


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_many_problems_are_found_by_their_place(tmp_path: Path, suffix: str):
    content = "".join(json.dumps(problem(f"p{i}", "ä" * i)) + "\n\n" for i in range(100)).encode()
    path = tmp_path / f"problems{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    with ProblemIndex(path) as index:
        for number in (99, 0, 50, *range(100), 3):
            found: Problem = index[f"p{number}"]
            assert found.tests.cases[0].output == "ä" * number
        assert "p100" not in index
        assert len(index._kept) <= 32


def test_large_problems_are_not_kept_beside_each_other(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("autoclave.judge.files._KEPT_BYTES", 32_000)
    path = lines(tmp_path / "problems.jsonl", *(problem(f"p{i}", "x" * 10_000 * i) for i in range(6)))
    with ProblemIndex(path) as index:
        for number, kept in ((0, 1), (1, 2), (2, 3), (5, 1), (0, 1), (1, 2), (0, 2)):
            assert len(index[f"p{number}"].tests.cases[0].output) == 10_000 * number
            assert len(index._kept) == kept
        assert index._kept.size <= 32_000


@pytest.mark.parametrize(
    ("problems", "programs", "message"),
    [
        ([problem("a"), problem("a")], [], r"problems\.jsonl:2: id = 'a': already used at .*problems\.jsonl:1"),
        ([problem("a")], [{"problem_id": "z", "source": ""}], r"programs\.jsonl:1: problem_id = 'z': no such problem"),
        (
            [problem("a")],
            [{"problem_id": "a", "source": "", "id": "x"}, {"problem_id": "a", "source": "1", "id": "x"}],
            r"programs\.jsonl:2: id = 'x': already used at .*programs\.jsonl:1",
        ),
        ([problem("a")], [{"problem_id": "a"}], r"programs\.jsonl:1: .*exactly one of source and response"),
        ([problem("a", extra=1)], [], r"problems\.jsonl:1.*extra"),
        ([{"format": "other"}], [], r"problems\.jsonl:1.*format"),
    ],
)
def test_a_bad_line_is_named_before_anything_runs(tmp_path: Path, problems: Any, programs: Any, message: str):
    lines(tmp_path / "problems.jsonl", *problems)
    lines(tmp_path / "programs.jsonl", *programs)
    with pytest.raises(DataError, match=message):
        judge_file(NeverCalled(), tmp_path / "problems.jsonl", tmp_path / "programs.jsonl", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_missing_file_or_an_unknown_rule_is_an_error(tmp_path: Path):
    problems = lines(tmp_path / "problems.jsonl", problem("a"))
    with pytest.raises(InputError, match="no such file"):
        judge_file(NeverCalled(), problems, tmp_path / "none.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="extraction = 'best': must be one of last_fence, lcb, whole"):
        judge_file(NeverCalled(), problems, problems, tmp_path / "out.jsonl", extraction="best")


@pytest.mark.parametrize("which", ["problems.jsonl", "programs.jsonl"])
def test_a_pipe_is_refused_by_name(tmp_path: Path, which: str):
    lines(tmp_path / "problems.jsonl", problem("p"))
    lines(tmp_path / "programs.jsonl", {"problem_id": "p", "source": ""})
    content = (tmp_path / which).read_bytes()
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    paths = {name: tmp_path / name for name in ("problems.jsonl", "programs.jsonl")}
    paths[which] = Path(f"/dev/fd/{reading}")
    with pytest.raises(InputError, match=rf"^/dev/fd/{reading}: is a pipe.*Fix: "):
        judge_file(NeverCalled(), *paths.values(), tmp_path / "out")
    os.close(reading)


def test_a_file_without_programs_is_an_error(tmp_path: Path):
    lines(tmp_path / "problems.jsonl", problem("p"))
    (tmp_path / "programs.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"programs\.jsonl: holds no programs"):
        judge_file(NeverCalled(), tmp_path / "problems.jsonl", tmp_path / "programs.jsonl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_gzip_file_is_an_error(tmp_path: Path):
    path = tmp_path / "problems.jsonl.gz"
    path.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(DataError, match="damaged gzip"):
        ProblemIndex(path)


def test_a_fault_is_written_down_and_the_others_go_on(tmp_path: Path):
    problems = lines(tmp_path / "problems.jsonl", problem("a"))
    programs = lines(tmp_path / "programs.jsonl", *({"problem_id": "a", "source": str(i)} for i in range(3)))
    counts = judge_file(FaultyOnSecond(), problems, programs, tmp_path / "out.jsonl")
    verdicts = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert counts == {"accepted": 2, "no_verdict": 1}
    assert (verdicts[1]["status"], verdicts[1]["reward"]) == (None, None)
    assert verdicts[1]["fault"] == {"kind": "sandbox", "detail": "gone"}


def test_an_error_midway_leaves_no_partial_file_and_keeps_the_old_one(judge, tmp_path: Path):
    problems = lines(tmp_path / "problems.jsonl", problem("a"), problem("b", checker="magic"))
    programs = lines(tmp_path / "programs.jsonl", {"problem_id": "a", "source": SUM}, {"problem_id": "b", "source": ""})
    (tmp_path / "out.jsonl").write_text("old")
    with pytest.raises(InputError, match="checker"):
        judge_file(judge, problems, programs, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3


UNFIT = {
    "checker": ({"checker": "magic"}, "checker = 'magic': must be one of"),
    "tolerance": ({"checker": "float(2, 0)"}, "checker.rtol = 2.0: must be at least 0 and less than 1"),
    "profile": ({"profile": "numpy!"}, "profile = 'numpy!': must be one of"),
    "kind": ({"tests": {"kind": "stored", "digest": "0" * 64}}, "tests.kind = 'stored'"),
    "checker of text for calls": (
        {"checker": "tokens", "tests": {"kind": "call", "entry_point": "f", "cases": [{"arguments": [], "output": 1}]}},
        "checker = 'tokens': compares text; for calls",
    ),
    "output": (
        {"tests": {"kind": "stdin", "cases": [{"input": "", "output": ""}, {"input": "", "output": "x" * 2_200_000}]}},
        "tests.cases[1].output: has 2.1 MiB, but sandbox.output_limit_mb = 2.0, so no program can solve it",
    ),
    "result": (
        {"tests": {"kind": "call", "entry_point": "f", "cases": [{"arguments": [], "output": ["x" * 2_200_000]}]}},
        "tests.cases[0].output: has 2.1 MiB, but sandbox.output_limit_mb = 2.0",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_problem_that_cannot_be_judged_is_named_before_any_program_runs(
    judge, tmp_path: Path, monkeypatch, what: str
):
    fields, reason = UNFIT[what]
    monkeypatch.setattr(judge, "submit", NeverCalled().submit)
    problems = lines(tmp_path / "problems.jsonl", problem("a"), problem("b", **fields))
    programs = lines(tmp_path / "programs.jsonl", {"problem_id": "a", "source": SUM}, {"problem_id": "b", "source": ""})
    with pytest.raises(InputError) as caught:
        judge_file(judge, problems, programs, tmp_path / "out.jsonl")
    assert str(caught.value).startswith(f"problem 'b': {reason}")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_checker_that_does_not_compile_leaves_its_programs_without_a_verdict(judge, tmp_path: Path):
    broken = {"name": "custom", "source": "def check(:"}
    problems = lines(tmp_path / "problems.jsonl", problem("a"), problem("b", checker=broken))
    programs = lines(tmp_path / "programs.jsonl", *({"problem_id": name, "source": SUM} for name in "aba"))
    assert judge_file(judge, problems, programs, tmp_path / "out.jsonl") == {"accepted": 2, "no_verdict": 1}
    verdict = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])
    assert verdict["fault"]["kind"] == "problem"
    assert verdict["fault"]["detail"].startswith("problem 'b': checker.source does not compile: SyntaxError")


class NeverCalled:
    """A judge that must not be used."""

    level = "sealed"

    def check(self, problem):
        """Every problem could be judged."""

    def submit(self, job):
        raise AssertionError("nothing may run")


class FaultyOnSecond(NeverCalled):
    """A judge whose second job meets a fault."""

    def submit(self, job):
        from concurrent.futures import Future

        future: Future[Verdict] = Future()
        names = {"problem_id": job.problem.id, "id": job.id}
        fault = job.program.source == "1"
        verdict = Verdict.none(Fault("sandbox", "gone"), **names) if fault else Verdict.of(Status.ACCEPTED, **names)
        future.set_result(verdict)
        return future
