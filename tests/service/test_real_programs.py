"""About 200 real programs, and hostile ones, by every protocol: the verdicts are those of the judge on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import sandbox_fusion as fusion

from autoclave.core import Status, Verdict
from autoclave.judge.comparison import matches_like_livecodebench

from .conftest import LiveServer, upload
from .real_programs import LIMIT_S, Case, asked, local_verdicts, real_programs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs(data: Path) -> list[Case]:
    return real_programs(data)


@pytest.fixture(scope="module")
def local(programs: list[Case], compatible: LiveServer) -> dict[str, Verdict]:
    return local_verdicts(programs, compatible.parts.config.judge)


def test_every_kind_has_enough_programs(programs: list[Case], local: dict[str, Verdict]):
    assert len(programs) >= 200
    assert {verdict.status for verdict in local.values()} == set(Status) - {Status.BAD_FORMAT}


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


def test_runs_end_as_with_the_local_judge(programs: list[Case], local: dict[str, Verdict], compatible: LiveServer):
    fusion.set_endpoint(compatible.url)
    words = fusion.SummaryMapping(Success="ended", Failed="failed", RunTimeout="late")

    def run(case: Case) -> object:
        first = case[1].tests.cases[0]
        request = fusion.RunCodeRequest(code=case[2], language="python", stdin=first.input, run_timeout=LIMIT_S)
        result = fusion.run_code(request, max_attempts=5)  # a full queue is retried
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
