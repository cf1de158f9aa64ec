"""`SandboxFusionJudge`: a judge whose programs run on SandboxFusion servers, one request per test.

Only programs and inputs are sent; the problem's checker compares outputs here. Such a server does not report its
isolation, which counts as `open`, nor why a program was killed, and does not repeat a run close to its time limit. A
response that is not the result of a run is retried; after that there is no verdict.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import httpx

from autoclave.config import JudgeConfig, Level, RemoteJudgeConfig
from autoclave.core import (
    Closing,
    ConfigError,
    Fault,
    HostError,
    InputError,
    IsolationError,
    JudgeFault,
    Problem,
    Status,
    StdinTests,
    Trace,
    Verdict,
)
from autoclave.core.verdict import TestResult
from autoclave.judge import JudgeJob
from autoclave.judge.checkers import Rule, checker_of
from autoclave.judge.evaluation import chosen_tests
from autoclave.judge.limits import time_limit_of
from autoclave.judge.profiles import PROFILES
from autoclave.service.client import context_of, require_language, token_of
from autoclave.service.loop_thread import LoopThread
from autoclave.service.server_link import pause_s
from autoclave.service.transport import CancellableTransport

_COMPILE_TIMEOUT_S = 30.0
_SLACK_S = 10.0
_LANGUAGES = ("python", "cpp")
_ANSWER_BYTES = 128 << 20
_FLOOD: Mapping[str, Any] = {"status": "Failed", "flood": True}
"""Replaces a longer response: only output of the program can make it so long."""
_REFUSED = 96
"""Exit code of a Python program that cannot be compiled. A program that exits with it counts as one."""
_WRAPPED = """{preamble}
import sys as _sys
_sys.set_int_max_str_digits({digits})
try:
    _code = compile({source}, "program.py", "exec", dont_inherit=True)
except (SyntaxError, ValueError) as _error:
    _sys.stderr.write(f"{{type(_error).__name__}}: {{_error}}\\n")
    _sys.exit({refused})
del _sys
exec(_code)
"""


class _InvalidResponse(Exception):
    """The response is not the result of a run. `is_retryable`: another try may succeed."""

    def __init__(self, message: str, *, is_retryable: bool = True) -> None:
        super().__init__(message)
        self.is_retryable = is_retryable


class SandboxFusionJudge(Closing):
    """A `Judge` on SandboxFusion servers, for problems with standard input. Safe to use from several threads."""

    def __init__(
        self, config: RemoteJudgeConfig, judge_config: JudgeConfig | None = None, *, minimum_level: Level = "sealed"
    ) -> None:
        """Find the servers. `judge_config` has the range of time limits, which requests carry.

        Raises:
            ConfigError: no server is configured, or the configured token is missing.
            IsolationError: the minimum level is above `open`, the level of such servers.
            HostError: no server responds.
        """
        if not config.urls:
            raise ConfigError(
                "judge.remote.urls: is empty. Fix: name the servers, such as judge.remote.urls=[http://host:8080]"
            )
        if minimum_level != "open":
            raise IsolationError(
                f'sandbox.minimum_level = "{minimum_level}": a SandboxFusion server does not report its isolation. '
                "Fix: sandbox.minimum_level=open, if you trust it with these programs"
            )
        token = token_of(config)
        self._config, self._judge_config = config, judge_config or JudgeConfig()
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            transport=CancellableTransport(
                httpx.AsyncHTTPTransport(
                    verify=context_of(config),
                    trust_env=False,
                    limits=httpx.Limits(max_connections=config.requests_at_a_time),
                )
            ),
            trust_env=False,
        )
        self._urls = itertools.cycle([url.rstrip("/") for url in config.urls])
        self._slots = asyncio.Semaphore(config.requests_at_a_time)
        self._lock = threading.Lock()
        self._num_judged = self._num_pending = 0
        self._thread = LoopThread("sandbox-fusion", "the judge is closed")
        try:
            self._thread.wait(self._find())
        except BaseException:
            self.close()
            raise

    @property
    def level(self) -> Level:
        return "open"

    def check(self, problem: Problem) -> None:
        def refuse(what: str, rule: str) -> InputError:
            return InputError(f"problem {problem.id!r}: {what}: judge.remote.protocol=sandbox_fusion: {rule}")

        if not isinstance(problem.tests, StdinTests):
            raise refuse(f"tests.kind = {problem.tests.kind!r}", "must be stdin")
        if problem.language not in _LANGUAGES:
            raise refuse(f"language = {problem.language!r}", f"must be one of {', '.join(_LANGUAGES)}")
        if problem.profile not in ("plain", "lcb"):
            raise refuse(f"profile = {problem.profile!r}", "must be plain or lcb")
        if not isinstance(checker_of(problem), Rule):
            raise refuse("checker", "a checker in code needs a sealed judge")

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self.check(job.problem)
        require_language(job)
        tests = job.problem.tests
        assert isinstance(tests, StdinTests)
        indices = chosen_tests(job, [len(case.input) for case in tests.cases])
        future = self._thread.start(self._judged(job, indices, time.monotonic() + self._config.deadline_s))
        with self._lock:
            self._num_pending += 1
        future.add_done_callback(self._note_end)
        return future

    def state(self) -> str:
        with self._lock:
            return f"{self._num_pending} programs pending, {self._num_judged} judged"

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        raise InputError(f"problem {job.problem.id!r}: SandboxFusion servers do not make traces")

    def close(self) -> None:
        self._thread.close(self._client.aclose)

    async def _judged(self, job: JudgeJob, indices: tuple[int, ...], deadline: float) -> Verdict:
        async with self._slots:
            return await self._judge(job, indices, deadline)

    def _note_end(self, future: Future[Verdict]) -> None:
        with self._lock:
            self._num_pending -= 1
            self._num_judged += not future.cancelled()

    async def _find(self) -> None:
        reasons: list[str] = []
        for url in self._config.urls:
            try:
                reply = await self._client.get(f"{url.rstrip('/')}/v1/ping", timeout=self._config.timeout_s)
            except httpx.HTTPError as error:
                reasons.append(f"{url} ({type(error).__name__})")
                continue
            if reply.status_code == 200:
                return
            reasons.append(f"{url} (status {reply.status_code})")
        raise HostError(
            f"no SandboxFusion server responds: {', '.join(reasons)}. Fix: start one, or correct judge.remote.urls"
        )

    # --- One program -----------------------------------------------------------------------------------------------

    async def _judge(self, job: JudgeJob, indices: tuple[int, ...], deadline: float) -> Verdict:
        """Return the verdict; one with a fault if no server returns the result of a run."""
        problem = job.problem
        tests: list[TestResult] = []
        first: tuple[int | None, Status, str] | None = None
        for index in indices:
            try:
                status, message, result = await self._run_test(job, index, deadline)
            except JudgeFault as error:
                kind = "deadline" if time.monotonic() >= deadline else "server"
                return Verdict.none(Fault(kind, str(error)), problem_id=problem.id, id=job.id, level=self.level)
            if status is Status.COMPILE_ERROR:
                first, tests = (None, status, message), []
                break
            tests.append(result)
            if status is not Status.ACCEPTED and first is None:
                first = index, status, message
                if job.stop_at_failure:
                    break
        failing, status, message = first or (None, Status.ACCEPTED, "")
        return Verdict.of(
            status,
            problem_id=problem.id,
            id=job.id,
            failing_test=failing,
            tests=tests,
            level=self.level,
            message=message,
        )

    async def _run_test(self, job: JudgeJob, index: int, deadline: float) -> tuple[Status, str, TestResult]:
        tests = job.problem.tests
        assert isinstance(tests, StdinTests)
        case, limit_s = tests.cases[index], time_limit_of(job.problem, self._judge_config)
        answer = await self._run_remote(_request(job, case.input, limit_s), limit_s, deadline)
        status, message = _failure_of(job, answer)
        run: Mapping[str, Any] = answer.get("run_result") or {}
        if status is None:
            rule = checker_of(job.problem)
            assert isinstance(rule, Rule)
            is_right = rule.matches_text(str(run.get("stdout") or ""), case.output)
            status = Status.ACCEPTED if is_right else Status.WRONG_ANSWER
            message = "" if is_right else "the output does not match"
        wall_s = run.get("execution_time")
        seconds = float(wall_s) if isinstance(wall_s, int | float) else 0.0
        return status, message, TestResult(index, status, seconds, seconds, 0.0)

    async def _run_remote(self, body: Mapping[str, Any], limit_s: float, deadline: float) -> Mapping[str, Any]:
        """Return the result of one run. Raises `JudgeFault` if no server returns it."""
        reason = ""
        for attempt in range(self._config.retries + 1):
            url = next(self._urls)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                return await self._post(url, body, min(self._config.timeout_s + 2 * limit_s + _SLACK_S, left_s))
            except _InvalidResponse as error:
                reason = f"{url}: {error}"
                if not error.is_retryable:
                    break
            if attempt < self._config.retries:
                await asyncio.sleep(min(pause_s(attempt), left_s))
        raise JudgeFault(reason or f"no verdict within {self._config.deadline_s:g} s")

    async def _post(self, url: str, body: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/json"}
        content = bytearray()
        try:
            async with self._client.stream(
                "POST", f"{url}/run_code", content=json.dumps(body), headers=headers, timeout=timeout_s
            ) as reply:
                async for piece in reply.aiter_bytes():
                    content += piece
                    if len(content) > _ANSWER_BYTES:
                        return _FLOOD
        except httpx.HTTPError as error:
            raise _InvalidResponse(type(error).__name__) from None
        if reply.status_code != 200:
            is_retryable = reply.status_code == 429 or reply.status_code >= 500
            text = content[:300].decode("utf-8", "replace")
            raise _InvalidResponse(f"status {reply.status_code}: {text}", is_retryable=is_retryable)
        try:
            answer = json.loads(content)
        except ValueError:
            raise _InvalidResponse("its response is not JSON") from None
        if not isinstance(answer, dict) or answer.get("status") not in ("Success", "Failed"):
            raise _InvalidResponse("its sandbox failed")
        return answer


def _request(job: JudgeJob, stdin: str, limit_s: float) -> dict[str, Any]:
    problem, source = job.problem, job.program.source
    if problem.language == "python":
        profile = PROFILES[problem.profile]
        source = _WRAPPED.format(
            preamble=profile.preamble,
            digits=profile.int_max_str_digits,
            source=ascii(source.removeprefix("\ufeff")),
            refused=_REFUSED,
        )
    return {
        "code": source,
        "language": problem.language,
        "stdin": stdin,
        "run_timeout": limit_s,
        "compile_timeout": _COMPILE_TIMEOUT_S,
        "memory_limit_MB": problem.memory_limit_mb or -1,
        "files": {},
        "fetch_files": [],
    }


def _failure_of(job: JudgeJob, answer: Mapping[str, Any]) -> tuple[Status | None, str]:
    """Return how a run failed; None if it exited with 0."""
    if answer is _FLOOD:
        return Status.OUTPUT_LIMIT, "it printed too much"
    compiled, run = answer.get("compile_result"), answer.get("run_result")
    if isinstance(compiled, dict) and (compiled.get("status") != "Finished" or compiled.get("return_code") != 0):
        return Status.COMPILE_ERROR, "compile error"
    if not isinstance(run, dict):
        return Status.RUNTIME_ERROR, "it did not run"
    if run.get("status") == "TimeLimitExceeded":
        return Status.TIME_LIMIT, "time limit"
    code = run.get("return_code")
    if code == 0:
        return None, ""
    if code == _REFUSED and job.problem.language == "python":
        return Status.COMPILE_ERROR, "it cannot be compiled"
    if isinstance(code, int) and code < 0:
        return Status.RUNTIME_ERROR, f"ended by signal {-code}"
    return Status.RUNTIME_ERROR, f"exit code {code}"
