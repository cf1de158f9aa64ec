"""`LocalJudge`: judge programs on this machine.

Worker threads take jobs in order; each owns a sandbox with its warm zygotes, so workers share nothing but the gate
that lets a borderline run be alone. A fault of the sandbox is retried on fresh cells; if it stays, a program known to
be good is judged: when that works the fault is the program's doing, else there is no verdict.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from autoclave.config.sandbox import JudgeConfig, Level, SandboxConfig
from autoclave.core import Fault, Problem, Program, SandboxFault, Status, StdinCase, StdinTests, Verdict
from autoclave.judge.evaluation import Evaluation, PreparedJob, prepare
from autoclave.judge.gate import Gate
from autoclave.judge.interface import JudgeJob
from autoclave.sandbox import Sandbox, open_sandbox

_ATTEMPTS = 3
_REMEMBERED_VERDICTS = 1024
_REMEMBERED_DIGESTS = 64
_CANARY = JudgeJob(
    Problem(statement="canary", tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n")]), id="canary", profile="plain"),
    Program("print(sum(map(int, input().split())))"),
)
_log = logging.getLogger(__name__)

_Key = tuple[str, Program, str, bool]


@dataclass(slots=True)
class _Pending:
    """One program to judge, and everyone who waits for it."""

    key: _Key
    prepared: PreparedJob
    waiting: list[tuple[JudgeJob, Future[Verdict]]] = field(default_factory=list[tuple[JudgeJob, "Future[Verdict]"]])


class LocalJudge:
    """A `Judge` on this machine. Identical submissions are judged once."""

    def __init__(self, sandbox_config: SandboxConfig | None = None, judge_config: JudgeConfig | None = None) -> None:
        """Start the workers.

        Raises:
            IsolationError: this host cannot isolate as much as `sandbox_config.minimum_level` asks.
        """
        self._sandbox_config = sandbox_config or SandboxConfig()
        self._judge_config = judge_config or JudgeConfig()
        cores = sorted(os.sched_getaffinity(0))
        num_workers = self._judge_config.workers or len(cores)
        self._gate = Gate()
        self._lock = threading.Lock()
        self._pending: dict[_Key, _Pending] = {}
        self._verdicts: OrderedDict[_Key, Verdict] = OrderedDict()
        self._digests: OrderedDict[int, tuple[Problem, str]] = OrderedDict()
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._is_closed = False
        self._sandboxes = [open_sandbox(self._sandbox_config) for _ in range(num_workers)]
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(sandbox, cores[number % len(cores)] if num_workers >= len(cores) else None),
                name=f"judge-{number}",
                daemon=True,
            )
            for number, sandbox in enumerate(self._sandboxes)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def level(self) -> Level:
        return self._sandboxes[0].level

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        prepared = prepare(job, self._sandbox_config, self._judge_config)
        future: Future[Verdict] = Future()
        key = (self._digest(job.problem), job.program, job.tests, job.stop_at_failure)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the judge is closed")
            known = self._verdicts.get(key)
            if known is None:
                self._enqueue(key, prepared, future)
                return future
            self._verdicts.move_to_end(key)
        future.set_result(_addressed(known, job))
        return future

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            pending = list(self._pending.values())
            self._pending.clear()
        for _, future in (waiting for item in pending for waiting in item.waiting):
            future.cancel()
        for _ in self._threads:
            self._queue.put(None)
        for sandbox in self._sandboxes:
            sandbox.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enqueue(self, key: _Key, prepared: PreparedJob, future: Future[Verdict]) -> None:
        item = self._pending.get(key)
        if item is None:
            item = self._pending[key] = _Pending(key, prepared)
            self._queue.put(item)
        item.waiting.append((prepared.job, future))

    def _digest(self, problem: Problem) -> str:
        """The problem's digest, remembered: it is computed over all tests, and many programs share a problem."""
        with self._lock:
            remembered = self._digests.get(id(problem))
        if remembered is None:
            remembered = (problem, problem.digest)  # holding the problem keeps its id from being used again
            with self._lock:
                self._digests[id(problem)] = remembered
                if len(self._digests) > _REMEMBERED_DIGESTS:
                    self._digests.popitem(last=False)
        return remembered[1]

    def _work(self, sandbox: Sandbox, core: int | None) -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})  # this thread and the zygotes it starts: wake-ups stay on one core
        while (item := self._queue.get()) is not None:
            try:
                self._finish(item, self._judge(item.prepared, sandbox))
            except Exception as error:  # noqa: BLE001  a bug here must fail its job, not silence the worker
                self._fail(item, error)

    def _judge(self, prepared: PreparedJob, sandbox: Sandbox) -> Verdict:
        fault: SandboxFault | None = None
        for _ in range(_ATTEMPTS):
            if self._is_closed:
                break
            try:
                return Evaluation(prepared, sandbox, self._gate).run()
            except SandboxFault as error:
                fault = error
                if self._is_closed:
                    break
                _log.warning("sandbox fault while judging problem %r: %s", prepared.job.problem.id, error)
        job = prepared.job
        if not self._is_closed and self._is_canary_accepted(sandbox):
            _log.error("alarm: a program for problem %r made its cells fail %d times", job.problem.id, _ATTEMPTS)
            message = "the program made its cell fail"
            return Verdict.of(
                Status.RUNTIME_ERROR, problem_id=job.problem.id, id=job.id, level=sandbox.level, message=message
            )
        return Verdict.none(Fault("sandbox", str(fault)), problem_id=job.problem.id, id=job.id, level=sandbox.level)

    def _is_canary_accepted(self, sandbox: Sandbox) -> bool:
        prepared = prepare(_CANARY, self._sandbox_config, self._judge_config)
        try:
            return Evaluation(prepared, sandbox, self._gate).run().is_accepted
        except SandboxFault:
            return False

    def _finish(self, item: _Pending, verdict: Verdict) -> None:
        with self._lock:
            self._pending.pop(item.key, None)
            if verdict.fault is None:
                self._verdicts[item.key] = verdict
                if len(self._verdicts) > _REMEMBERED_VERDICTS:
                    self._verdicts.popitem(last=False)
            waiting = item.waiting
        for job, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(_addressed(verdict, job))

    def _fail(self, item: _Pending, error: Exception) -> None:
        with self._lock:
            self._pending.pop(item.key, None)
        for _, future in item.waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


def _addressed(verdict: Verdict, job: JudgeJob) -> Verdict:
    """The same verdict under the ids of `job`."""
    return replace(verdict, problem_id=job.problem.id, id=job.id)
