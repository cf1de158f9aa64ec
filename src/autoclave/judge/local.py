"""`LocalJudge`: judge programs on this machine.

Worker threads take jobs in order; each owns a sandbox with its warm zygotes, so workers share only the gate that lets a
borderline run be alone. A fault of the sandbox is retried on fresh cells. If it stays, the judge runs a control
program: when that is accepted, the program caused the fault, else there is no verdict.
"""

import hashlib
import logging
import os
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from autoclave.config.levels import Level
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import Closing, Program, Trace
from autoclave.core.errors import ExhaustedFault, InputError, JudgeFault, SandboxFault
from autoclave.core.futures import MeteredFuture
from autoclave.core.problem import AnswerTests, Problem, StdinCase, StdinTests
from autoclave.core.sized_cache import SizedCache
from autoclave.core.verdict import Fault, Verdict
from autoclave.judge.evaluation import Cancelled, Evaluation, PreparedJob
from autoclave.judge.gate import Gate
from autoclave.judge.interface import JudgeJob
from autoclave.judge.traces import PreparedTrace, SharedCell
from autoclave.judge.validation import ProblemValidation
from autoclave.sandbox import Sandbox, open_sandbox, used_by_thread

_ATTEMPTS = 3
_BLAMED = "the program made its cell fail"
_TRACES_PER_CELL = 8
"""Consecutive runs of one program in one cell; further runs go to other workers."""
_CACHED_RESULTS = 30_000
"""Test results in all cached verdicts: about 10 MB. A verdict itself counts as one more."""
_CONTROL_JOB = JudgeJob(
    Problem(
        statement="control program",
        tests=StdinTests("stdin", [StdinCase("1 2\n", "3\n")]),
        id="control",
        profile="plain",
    ),
    Program("print(sum(map(int, input().split())))"),
)
_CONTROL_ANSWERS = {
    comparator: JudgeJob(
        Problem(statement="control program", tests=AnswerTests("answer", "3", comparator), id="control"), Program("3")
    )
    for comparator in ("math", "value", "text")
}
_log = logging.getLogger(__name__)

_Key = tuple[str, str, bytes, str, bool]
"""Digest of the problem, language, digest of the source, choice of tests, whether to stop at a failure."""


@dataclass(slots=True)
class _Pending:
    """One program to judge, and the futures that wait for it."""

    key: _Key
    prepared: PreparedJob
    waiting: list[tuple[JudgeJob, MeteredFuture[Verdict]]] = field(
        default_factory=list[tuple[JudgeJob, "MeteredFuture[Verdict]"]]
    )
    is_blamed: bool = False
    """True if the program was blamed for failed cells; such a verdict is not cached."""


_TraceKey = tuple[str, str, bytes]
"""As `_Key`, for the runs that share a cell."""


@dataclass(frozen=True, slots=True)
class _PendingTraces:
    """Traces of one program to make in one cell. They are not cached and share nothing with verdicts."""

    key: _TraceKey
    waiting: list[tuple[PreparedTrace, Future[Trace]]] = field(
        default_factory=list[tuple[PreparedTrace, "Future[Trace]"]]
    )


class LocalJudge(Closing):
    """A `Judge` on this machine. Identical submissions are judged once."""

    def __init__(self, sandbox_config: SandboxConfig | None = None, judge_config: JudgeConfig | None = None) -> None:
        """Start the workers.

        Raises:
            IsolationError: this host cannot isolate as much as `sandbox_config.minimum_level` requires.
        """
        self._sandbox_config = sandbox_config or SandboxConfig()
        self._judge_config = judge_config or JudgeConfig()
        self._validation = ProblemValidation(self._sandbox_config, self._judge_config)
        cores = sorted(os.sched_getaffinity(0))
        num_workers = self._judge_config.workers or len(cores)
        self._gate = Gate()
        self._lock = threading.Lock()
        self._pending: dict[_Key, _Pending] = {}
        self._pending_traces: dict[_TraceKey, _PendingTraces] = {}
        self._verdicts = SizedCache[_Key, Verdict](_CACHED_RESULTS)
        self._num_judged = 0
        self._queue: queue.SimpleQueue[_Pending | _PendingTraces | None] = queue.SimpleQueue()
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

    def check(self, problem: Problem) -> None:
        self._validation.of(problem)

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        problem = self._validation.of(job.problem)
        prepared = self._validation.prepared(job)
        future: MeteredFuture[Verdict] = MeteredFuture()
        key = (problem.digest, job.program.language, _digest_of(job.program), job.tests, job.stop_at_failure)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the judge is closed")
            known = self._verdicts.get(key)
            if known is None:
                self._enqueue(key, prepared, future)
                return future
        future.set_result(_addressed(known, job))
        return future

    def state(self) -> str:
        with self._lock:
            return f"{len(self._pending)} programs wait or are judged, {self._num_judged} were judged"

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        prepared = self._validation.prepared_trace(job, index)
        future: Future[Trace] = Future()
        key = (self._validation.of(job.problem).digest, job.program.language, _digest_of(job.program))
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the judge is closed")
            item = self._pending_traces.get(key)
            if item is None or len(item.waiting) == _TRACES_PER_CELL:
                item = self._pending_traces[key] = _PendingTraces(key)
                self._queue.put(item)
            item.waiting.append((prepared, future))
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
        self._validation.close()

    def _enqueue(self, key: _Key, prepared: PreparedJob, future: MeteredFuture[Verdict]) -> None:
        item = self._pending.get(key)
        if item is None:
            item = self._pending[key] = _Pending(key, prepared)
            self._queue.put(item)
        item.waiting.append((prepared.job, future))

    def _work(self, sandbox: Sandbox, core: int | None) -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})  # this thread and the zygotes it starts: wake-ups stay on one core
        while (item := self._queue.get()) is not None:
            if isinstance(item, _PendingTraces):
                self._trace(item, sandbox)
                continue
            if self._is_cancelled(item):
                continue
            try:
                before = used_by_thread.cpu_s
                verdict = self._judge(item, sandbox)
                self._finish(item, verdict, used_by_thread.cpu_s - before)
            except Cancelled:
                continue
            except Exception as error:  # noqa: BLE001  a bug here must fail its job, not silence the worker
                self._fail(item, error)

    def _is_cancelled(self, item: _Pending) -> bool:
        """Return whether all its callers have cancelled; then forget it."""
        with self._lock:
            if not all(future.cancelled() for _, future in item.waiting):
                return False
            self._pending.pop(item.key, None)
            return True

    def _judge(self, item: _Pending, sandbox: Sandbox) -> Verdict:
        prepared, job = item.prepared, item.prepared.job
        fault: SandboxFault | None = None
        evaluation = Evaluation(prepared, sandbox, self._gate)
        for _ in range(_ATTEMPTS):
            if self._is_closed:
                break
            evaluation = Evaluation(prepared, sandbox, self._gate, lambda: not self._is_cancelled(item))
            try:
                return evaluation.run()
            except InputError as error:
                return self._no_verdict(job, "problem", error)
            except SandboxFault as error:
                fault = error
                if self._is_closed:
                    break
                _log.warning("sandbox fault while judging problem %r: %s", prepared.job.problem.id, error)
        if self._is_induced(fault, job.problem, sandbox):
            return self._last_attempt(item, sandbox, evaluation)
        return self._no_verdict(job, "sandbox", fault)

    def _no_verdict(self, job: JudgeJob, kind: str, error: Exception | None) -> Verdict:
        return Verdict.none(Fault(kind, str(error)), problem_id=job.problem.id, id=job.id, level=self.level)

    def _last_attempt(self, item: _Pending, sandbox: Sandbox, failed: Evaluation) -> Verdict:
        """Make one more attempt alone, before the program is blamed for a fault that may have come from outside."""
        prepared = item.prepared
        with self._gate.alone():
            try:
                return Evaluation(prepared, sandbox, Gate()).run()
            except SandboxFault as fault:
                if not self._is_closed and not isinstance(fault, ExhaustedFault):
                    problem_id, count = prepared.job.problem.id, _ATTEMPTS + 1
                    _log.error("alarm: a program for problem %r made its cells fail %d times", problem_id, count)
                    item.is_blamed = True
                    return failed.blame(_BLAMED)
                return self._no_verdict(prepared.job, "sandbox", fault)

    def _trace(self, item: _PendingTraces, sandbox: Sandbox) -> None:
        with self._lock:
            if self._pending_traces.get(item.key) is item:
                del self._pending_traces[item.key]
        try:
            with SharedCell(sandbox) as shared:
                for prepared, future in item.waiting:
                    self._trace_one(prepared, future, shared)
        except Exception as error:  # noqa: BLE001  as in `_work`
            for _, future in item.waiting:
                if not future.done():
                    future.set_exception(error)

    def _trace_one(self, prepared: PreparedTrace, future: Future[Trace], shared: SharedCell) -> None:
        if self._is_closed:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._traced(prepared, shared))
        except JudgeFault as fault:
            future.set_exception(fault)

    def _traced(self, prepared: PreparedTrace, shared: SharedCell) -> Trace:
        fault: SandboxFault | None = None
        for _ in range(_ATTEMPTS):
            try:
                return prepared.run(shared, self._gate)
            except SandboxFault as error:
                fault = error
                shared.abandon(error)
                if self._is_closed:
                    break
                _log.warning("sandbox fault while tracing problem %r: %s", prepared.job.problem.id, error)
        if self._is_induced(fault, prepared.job.problem, shared.sandbox):
            return prepared.no_values("the program made its cell fail")
        raise JudgeFault(f"no trace: {fault}")

    def _is_induced(self, fault: SandboxFault | None, problem: Problem, sandbox: Sandbox) -> bool:
        """Return whether the program caused the fault: the host is not exhausted, and a control program is accepted."""
        is_of_host = isinstance(fault, ExhaustedFault)
        return not is_of_host and not self._is_closed and self._is_control_accepted(_control_for(problem), sandbox)

    def _is_control_accepted(self, control: JudgeJob, sandbox: Sandbox) -> bool:
        prepared = self._validation.prepared(control)
        try:
            return Evaluation(prepared, sandbox, self._gate).run().is_accepted
        except SandboxFault:
            return False

    def _finish(self, item: _Pending, verdict: Verdict, cpu_s: float) -> None:
        with self._lock:
            self._num_judged += 1
            self._pending.pop(item.key, None)
            if verdict.fault is None and not item.is_blamed:
                self._verdicts.add(item.key, verdict, 1 + len(verdict.tests))
            waiting = item.waiting
        for job, future in waiting:
            if future.set_running_or_notify_cancel():
                future.cpu_s = cpu_s
                future.set_result(_addressed(verdict, job))

    def _fail(self, item: _Pending, error: Exception) -> None:
        with self._lock:
            self._pending.pop(item.key, None)
        for _, future in item.waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


def _control_for(problem: Problem) -> JudgeJob:
    """Return the control program for cells like those of `problem`."""
    tests = problem.tests
    return _CONTROL_ANSWERS[tests.comparator] if isinstance(tests, AnswerTests) else _CONTROL_JOB


def _digest_of(program: Program) -> bytes:
    return hashlib.sha256(program.source.encode("utf-8", "surrogatepass")).digest()


def _addressed(verdict: Verdict, job: JudgeJob) -> Verdict:
    """Return the verdict with the ids of `job`."""
    return replace(verdict, problem_id=job.problem.id, id=job.id)
