"""SandboxFusion servers as a judge, asked against our own endpoints: the same verdicts, and no zero for a fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from autoclave.compose.host import build_judge
from autoclave.config import JudgeConfig, RemoteJudgeConfig, SandboxConfig
from autoclave.core import (
    AnswerTests,
    CallCase,
    CallTests,
    ConfigError,
    CustomChecker,
    HostError,
    InputError,
    IsolationError,
    Problem,
    Program,
    Status,
)
from autoclave.judge import JudgeJob, LocalJudge
from autoclave.judge.conformance import check_closing, stdin_problem, verdict_of
from autoclave.service import sandbox_fusion_judge, server_link
from autoclave.service.sandbox_fusion_judge import SandboxFusionJudge
from autoclave.service.tokens import Scope

from .conftest import DEADLINE_S, RIGHT, LiveServer, problem


def remote(*urls: str, **settings: object) -> RemoteJudgeConfig:
    return RemoteJudgeConfig(urls=urls, protocol="sandbox_fusion", **settings)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_link, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(server_link, "LONGEST_WAIT_S", 0.2)


@pytest.fixture(scope="module")
def judge(compatible: LiveServer) -> Iterator[SandboxFusionJudge]:
    with SandboxFusionJudge(remote(compatible.url), minimum_level="open") as opened:
        yield opened


CASES = [
    RIGHT,
    "print(7)",
    "1 / 0",
    "import sys; sys.exit(0)",
    "import os; os.abort()",
    "print(",
    "from __future__ import annotations\nprint(sum(map(int, input().split())))",
    "print(10 ** 4400 and sum(map(int, input().split())))",
    "if __name__ == '__main__':\n    print(sum(map(int, input().split())))",
    "print(eval('\\u0033') + 4)",
    "while True: pass",
    "print(str(10 ** 5000)[:1])",
    "\ufeffprint(sum(map(int, input().split())))",
]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["plain", "lcb"])
def test_verdicts_are_those_of_a_judge_on_this_machine(judge: SandboxFusionJudge, profile: str):
    given = problem(("3 4\n", "7\n"), ("1 1\n", "2\n"), profile=profile)
    with LocalJudge(SandboxConfig(), JudgeConfig(workers=2)) as local:
        pairs = [
            (local.submit(JudgeJob(given, Program(source), stop_at_failure=False)),
             judge.submit(JudgeJob(given, Program(source), stop_at_failure=False)))
            for source in CASES
        ]  # fmt: skip
        for source, (expected, found) in zip(CASES, pairs, strict=True):
            wanted, got = expected.result(DEADLINE_S), found.result(DEADLINE_S)
            assert (got.status, got.failing_test) == (wanted.status, wanted.failing_test), source
            assert [test.status for test in got.tests] == [test.status for test in wanted.tests], source
            assert (got.level, got.reward) == ("open", wanted.reward)


def test_compiled_programs_are_judged(judge: SandboxFusionJudge):
    given = problem(language="cpp")
    good = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }"
    statuses = [verdict_of(judge, given, Program(source, "cpp")).status for source in (good, "int main() { return }")]
    assert statuses == [Status.ACCEPTED, Status.COMPILE_ERROR]


def test_the_problems_checker_compares_outputs_and_tests_can_be_chosen(judge: SandboxFusionJudge):
    close = stdin_problem(("", "1.0"), checker="float")
    assert verdict_of(judge, close, Program("print(1.0000001)")).is_accepted
    given = stdin_problem(("a", "x"), ("bb", "bb"))
    longest = verdict_of(judge, given, Program("print(input())"), tests="longest:1")
    assert [result.index for result in longest.tests] == [1]
    assert longest.is_accepted


def test_closing_cancels_what_waits(compatible: LiveServer):
    check_closing(SandboxFusionJudge(remote(compatible.url, requests_at_a_time=2), minimum_level="open"))


@pytest.mark.parametrize(
    "given",
    [
        Problem("", CallTests("call", "f", [CallCase([1], 1)])),
        Problem("", AnswerTests("answer", "1", "text")),
        stdin_problem(("", ""), profile="lcb_numpy"),
        stdin_problem(("", ""), language="rust"),
        stdin_problem(("", ""), checker=CustomChecker("custom", "def check(): pass")),
        stdin_problem(("", ""), checker="magic"),
    ],
)
def test_unsupported_problems_are_refused(judge: SandboxFusionJudge, given: Problem):
    with pytest.raises(InputError):
        judge.check(given)
    with pytest.raises(InputError):
        judge.submit(JudgeJob(given, Program("", given.language)))
    with pytest.raises(InputError, match="traces"):
        judge.trace(JudgeJob(problem(), Program("")), 0)


@pytest.mark.parametrize(
    "job",
    [
        JudgeJob(stdin_problem(("a", "a")), Program("", "cpp")),
        JudgeJob(stdin_problem(("a", "a")), Program(""), tests="some"),
        JudgeJob(stdin_problem(("a", "a")), Program(""), tests="longest:0"),
    ],
)
def test_an_invalid_job_is_refused_at_once(judge: SandboxFusionJudge, job: JudgeJob):
    with pytest.raises(InputError, match="must be"):
        judge.submit(job)


def test_an_endless_response_is_an_output_limit(judge: SandboxFusionJudge, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_fusion_judge, "_ANSWER_BYTES", 10_000)
    assert verdict_of(judge, problem(), Program("print('x' * 20_000)")).status is Status.OUTPUT_LIMIT


def test_no_expected_answer_is_sent(judge: SandboxFusionJudge, monkeypatch: pytest.MonkeyPatch):
    sent = []
    post = judge._post
    monkeypatch.setattr(judge, "_post", lambda url, body, timeout_s: sent.append(body) or post(url, body, timeout_s))
    verdict = verdict_of(judge, problem(("1 2\n", "x7-expected-q9")), Program(RIGHT))
    assert verdict.status is Status.WRONG_ANSWER
    assert "x7-expected-q9" not in repr(sent) + repr(verdict)


def test_settings_choose_the_protocol(compatible: LiveServer):
    settings = JudgeConfig(backend="remote", remote=remote(compatible.url))
    with pytest.raises(IsolationError, match="minimum_level=open"):
        build_judge(settings, SandboxConfig())
    with build_judge(settings, SandboxConfig(minimum_level="open")) as judge:
        assert verdict_of(judge, problem(), Program(RIGHT)).is_accepted
    for wrong in ({"priority": 9}, {"programs_per_request": 3}):
        with pytest.raises(ValidationError, match="ignored with protocol"):
            remote(compatible.url, **wrong)
    with pytest.raises(ValidationError, match="ignored with protocol"):
        RemoteJudgeConfig(requests_at_a_time=3)
    with pytest.raises(ConfigError, match="urls"):
        SandboxFusionJudge(remote(), minimum_level="open")


def test_a_missing_server_is_named(unused_port: int):
    with pytest.raises(HostError, match=rf"127\.0\.0\.1:{unused_port}"):
        SandboxFusionJudge(remote(f"http://127.0.0.1:{unused_port}"), minimum_level="open")


def test_requests_carry_the_token(start_server, tmp_path, monkeypatch: pytest.MonkeyPatch):
    from autoclave.compose.service import open_store
    from autoclave.config import CompatibleConfig
    from autoclave.service.tokens import create_token

    text, record = create_token("", frozenset({Scope.JUDGE}), 0.0, None)
    store = open_store(tmp_path / "t.sqlite")
    store.add_token(record)
    store.close()
    protocols = CompatibleConfig(protocols=("sandbox_fusion",))
    server = start_server(require_token=True, compatible=protocols, store=str(tmp_path / "t.sqlite"))
    monkeypatch.setenv("FUSION_TOKEN", text)
    with SandboxFusionJudge(remote(server.url, token_variable="FUSION_TOKEN"), minimum_level="open") as judge:
        assert verdict_of(judge, problem(), Program(RIGHT)).is_accepted
    with SandboxFusionJudge(remote(server.url), minimum_level="open") as judge:
        verdict = verdict_of(judge, problem(), Program(RIGHT))
    assert (verdict.reward, verdict.fault.kind) == (None, "server")
    assert "401" in verdict.fault.detail


class Failing(BaseHTTPRequestHandler):
    """A server that is well, until it is to run something."""

    replies = [(200, b'{"status": "SandboxError", "message": "no disk"}'), (503, b""), (200, b"[]"), (200, b"no JSON")]

    def do_GET(self) -> None:
        self.answer(200, b'"pong"')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.answer(*self.replies[self.server.asked % len(self.replies)])

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def failing() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Failing)
    server.asked = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_invalid_response_is_retried_and_then_gives_no_verdict(failing: HTTPServer):
    url = f"http://127.0.0.1:{failing.server_port}"
    with SandboxFusionJudge(remote(url, retries=5), minimum_level="open") as judge:
        verdict = verdict_of(judge, problem(), Program(RIGHT))
    assert failing.asked == 6
    assert (verdict.status, verdict.reward, verdict.fault.kind) == (None, None, "server")
    assert url in verdict.fault.detail


def test_closing_does_not_wait_for_a_server_that_does_not_answer(failing: HTTPServer, monkeypatch: pytest.MonkeyPatch):
    is_asked, is_closed = threading.Event(), threading.Event()

    def never(handler: Failing) -> None:
        is_asked.set()
        assert is_closed.wait(DEADLINE_S)

    monkeypatch.setattr(Failing, "do_POST", never)
    judge = SandboxFusionJudge(remote(f"http://127.0.0.1:{failing.server_port}"), minimum_level="open")
    future = judge.submit(JudgeJob(problem(), Program(RIGHT)))
    assert is_asked.wait(DEADLINE_S)
    closing = threading.Thread(target=judge.close)
    closing.start()
    closing.join(DEADLINE_S / 2)
    is_hanging = closing.is_alive()
    is_closed.set()
    closing.join(DEADLINE_S)
    assert not is_hanging
    assert future.cancelled()


def test_another_server_takes_over_after_a_failure(failing: HTTPServer, compatible: LiveServer):
    urls = (f"http://127.0.0.1:{failing.server_port}", compatible.url)
    with SandboxFusionJudge(remote(*urls), minimum_level="open") as judge:
        futures = [judge.submit(JudgeJob(problem(), Program(f"{RIGHT}  # {i}"))) for i in range(10)]
        assert all(future.result(DEADLINE_S).is_accepted for future in futures)


def test_a_deadline_gives_no_verdict(compatible: LiveServer):
    settings = remote(compatible.url, deadline_s=0.5, retries=2)
    with SandboxFusionJudge(settings, minimum_level="open") as judge:
        verdict = verdict_of(judge, problem(), Program("import time; time.sleep(100)"))
    assert (verdict.reward, verdict.fault.kind) == (None, "deadline")


def test_time_limits_are_those_of_the_settings(compatible: LiveServer, monkeypatch: pytest.MonkeyPatch):
    seen: list[float] = []
    request = sandbox_fusion_judge._request

    def noted(job: JudgeJob, given: str, limit_s: float):
        seen.append(limit_s)
        return request(job, given, limit_s)

    monkeypatch.setattr(sandbox_fusion_judge, "_request", noted)
    settings = JudgeConfig(time_limit_range=(1.0, 12.0), default_time_limit_s=4.0)
    with SandboxFusionJudge(remote(compatible.url), settings, minimum_level="open") as judge:
        assert verdict_of(judge, problem(time_limit_s=3.0), Program(RIGHT)).is_accepted
        assert verdict_of(judge, problem(), Program(RIGHT)).is_accepted
    assert seen == [3.0, 4.0]
