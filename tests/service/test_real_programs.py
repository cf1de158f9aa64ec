"""About 200 real programs, and hostile ones, by every protocol: the verdicts are those of the judge on this machine."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sandbox_fusion as fusion

from autoclave.config import JudgeConfig, SandboxConfig
from autoclave.core import Problem, Program, Status, StdinCase, StdinTests, Verdict
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge.comparison import matches_like_livecodebench

from .conftest import DEADLINE_S, LiveServer, upload

pytestmark = pytest.mark.slow

HOSTILE = {
    "a crash": "import os; os.abort()",
    "an exception": "raise ValueError",
    "an exit": "import sys; sys.exit(1)",
    "an early end": "import os; os._exit(0)",
    "no Python": "print(",
    "a loop": "while True: pass",
    "a sleep": "import time; time.sleep(100)",
    "a flood": "while True: print('x' * 10000)",
    "a flood of errors": "import sys\nwhile True: sys.stderr.write('x' * 10000)",
    "a hunger": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "a fork": "import os\nwhile True: os.fork()",
}
LIMIT_S = 1.0
Case = tuple[str, Problem, str]


def problem_of(cases: list[tuple[str, str]], id: str) -> Problem:
    tests = StdinTests("stdin", [StdinCase(*case) for case in cases])
    return Problem("", tests, id=id, profile="plain", time_limit_s=LIMIT_S, source="real")


@pytest.fixture(scope="module")
def programs(data: Path) -> list[Case]:
    """Name, problem and source."""
    found: list[Case] = []
    with gzip.open(data / "lcb_stdin_samples_o1mini.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            cases = [(case["input"], case["output"]) for case in record["sample_tests"]]
            found.append((f"o1-mini {number}", problem_of(cases, record["question_id"]), record["code"]))
    with gzip.open(data / "apps_train_5_ondisk.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            tests = json.loads(record["files"]["input_output.json"])
            if "fn_name" in tests:
                continue
            cases = list(zip(tests["inputs"], tests["outputs"], strict=True))[:1]
            problem = problem_of(cases, record["problem"])
            sources = json.loads(record["files"]["solutions.json"])
            sources += [one["code"] for one in json.loads(record["files"]["gen_solutions.json"])[:20]]
            for number, source in enumerate(sources):
                found.append((f"APPS {record['problem']}.{number}", problem, source))
    loops = problem_of([("3 4\n", "7\n")], "sum")
    return found + [(name, loops, source) for name, source in HOSTILE.items()]


@pytest.fixture(scope="module")
def local(programs: list[Case], compatible: LiveServer) -> dict[str, Verdict]:
    """Verdicts of a judge on this machine with the server's settings, all tests."""
    config = compatible.parts.config
    with LocalJudge(SandboxConfig(output_limit_mb=1), JudgeConfig(**config.judge.model_dump())) as judge:
        futures = {
            name: judge.submit(JudgeJob(problem, Program(source), stop_at_failure=False))
            for name, problem, source in programs
        }
        return {name: future.result(DEADLINE_S) for name, future in futures.items()}


def test_there_are_enough_programs_of_every_kind(programs: list[Case], local: dict[str, Verdict]):
    assert len(programs) >= 200
    assert {verdict.status for verdict in local.values()} == set(Status) - {Status.BAD_FORMAT}


def asked(programs: list[Case], ask: Callable[[Case], object]) -> dict[str, object]:
    with ThreadPoolExecutor(16) as threads:
        return dict(zip((name for name, _, _ in programs), threads.map(ask, programs), strict=True))


def test_submissions_get_the_verdicts_of_the_local_judge(
    programs: list[Case], local: dict[str, Verdict], compatible: LiveServer
):
    fusion.set_endpoint(compatible.url)
    upload(compatible.client, *{problem.digest: problem for _, problem, _ in programs}.values())

    def submit(case: Case) -> object:
        config = fusion.TestConfig(extra={"run_all_cases": True})
        request = fusion.SubmitRequest(
            dataset="real", id=case[1].digest, completion=f"```python\n{case[2]}\n```", config=config
        )
        result = fusion.submit(request, max_attempts=1)
        return result.accepted, result.extra["status"], [test.passed for test in result.tests]

    assert asked(programs, submit) == {
        name: (
            verdict.is_accepted,
            verdict.status.value,
            [test.status is Status.ACCEPTED for test in verdict.tests],
        )
        for name, verdict in local.items()
    }


def test_single_runs_end_as_in_the_local_judge(programs: list[Case], local: dict[str, Verdict], compatible: LiveServer):
    fusion.set_endpoint(compatible.url)
    words = fusion.SummaryMapping(Success="ended", Failed="failed", RunTimeout="late")

    def run(case: Case) -> object:
        first = case[1].tests.cases[0]
        request = fusion.RunCodeRequest(code=case[2], language="python", stdin=first.input, run_timeout=LIMIT_S)
        result = fusion.run_code(request, max_attempts=5)  # it is told to come again when many wait
        summary = fusion.summary_run_code_result(result, words)
        if summary == "ended":
            return "accepted" if matches_like_livecodebench(result.run_result.stdout, first.output) else "wrong_answer"
        return summary

    def expected(verdict: Verdict) -> str:
        status = verdict.tests[0].status if verdict.tests else verdict.status
        known = {Status.ACCEPTED: "accepted", Status.WRONG_ANSWER: "wrong_answer", Status.TIME_LIMIT: "late"}
        return known.get(status, "failed")

    assert asked(programs, run) == {name: expected(verdict) for name, verdict in local.items()}


def test_graded_requests_of_piston_pass_where_the_local_judge_accepts(
    programs: list[Case], local: dict[str, Verdict], compatible: LiveServer
):
    def execute(case: Case) -> object:
        first = case[1].tests.cases[0]
        names = {"main.py": case[2], "input.txt": first.input, "correct_output.txt": first.output}
        names["grader_config"] = f"TIME_LIMIT={LIMIT_S}\nMEMORY_LIMIT=512\nINPUT_MODE=stdio"
        files = [{"name": name, "content": content} for name, content in names.items()]
        body = {"language": "cf_python3", "version": "*", "files": files, "run_timeout": 5000}
        result = compatible.client.post("/api/v2/execute", json=body).json()
        return result["compile"]["code"] == 0 and result["run"]["code"] == 0 and result["run"]["stdout"].strip() == "1"

    def passes(verdict: Verdict) -> bool:
        return bool(verdict.tests) and verdict.tests[0].status is Status.ACCEPTED

    assert asked(programs, execute) == {name: passes(verdict) for name, verdict in local.items()}
