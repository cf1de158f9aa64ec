"""`ProcessJudge`: a `LocalJudge` in a process of its own.

The threads of a judge wake up for every event of their cells. In an interpreter with other work, such as an HTTP
server, both would wait for the interpreter lock. A process that dies is replaced, and its pending jobs are judged
again; a job that was pending at too many deaths gets a fault, never a verdict.
"""

import contextlib
import itertools
import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from autoclave.config.levels import Level
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import AutoclaveError, Closing, Fault, JudgeFault, Problem, Trace, Verdict
from autoclave.core.child import ChildProcess
from autoclave.core.futures import MeteredFuture
from autoclave.judge.interface import JudgeJob
from autoclave.judge.process_host import Outbox
from autoclave.judge.validation import ProblemValidation

_MOST_DEATHS = 2
"""A job that was pending at that many deaths of the process gets a fault."""
_PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Pauses before attempts to replace a process that died."""
_CLOSE_TIMEOUT_S = 30.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Request:
    """Job that the process works on, or with a `traced` test a trace. `number` is that of its problem."""

    ticket: int
    number: int
    job: JudgeJob
    traced: int | None
    future: MeteredFuture[Any]
    deaths: int = 0


class ProcessJudge(Closing):
    """A `Judge` in another process of this machine. Safe to use from several threads."""

    def __init__(self, sandbox_config: SandboxConfig | None = None, judge_config: JudgeConfig | None = None) -> None:
        """Start the process.

        Raises:
            IsolationError: this host cannot isolate as much as `sandbox_config.minimum_level` requires.
            JudgeFault: the process died while it started.
        """
        self._configs = sandbox_config or SandboxConfig(), judge_config or JudgeConfig()
        self._validation = ProblemValidation(*self._configs, forgotten=self._forget)
        self._tickets = itertools.count()
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._requests: dict[int, _Request] = {}
        self._num_judged = 0
        self._is_closed = False
        self._process = _Process(*self._configs)
        self._thread = threading.Thread(target=self._work, name="judge", daemon=True)
        self._thread.start()

    @property
    def level(self) -> Level:
        return self._process.level

    @property
    def process_id(self) -> int:
        return self._process.id

    def check(self, problem: Problem) -> None:
        self._validation.of(problem)

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self._validation.prepared(job)
        return self._request(job)

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        self._validation.prepared_trace(job, index)
        return self._request(job, index)

    def check_trace(self, job: JudgeJob, index: int) -> None:
        """Make sure that a trace can be made, without making one. Raises as `trace`."""
        self._validation.prepared_trace(job, index)

    def state(self) -> str:
        with self._lock:
            return f"{len(self._requests)} programs wait or are judged, {self._num_judged} were judged"

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            requests = list(self._requests.values())
            self._requests.clear()
            self._process.outbox.put("end")
            self._has_work.notify_all()
        for each in requests:
            each.future.cancel()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._process.end()
        self._thread.join()
        self._validation.close()

    def _request(self, job: JudgeJob, traced: int | None = None) -> Future[Any]:
        ticket = next(self._tickets)
        request = _Request(ticket, self._validation.of(job.problem).number, job, traced, MeteredFuture())
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the judge is closed")
            self._requests[ticket] = request
            self._process.begin(request)
            self._has_work.notify_all()
        request.future.add_done_callback(partial(self._note_cancelled, ticket))
        return request.future

    def _note_cancelled(self, ticket: int, future: Future[Any]) -> None:
        if future.cancelled():
            with self._lock:
                self._requests.pop(ticket, None)
                self._process.outbox.put("cancel", ticket)

    def _forget(self, number: int) -> None:
        """Release a problem that is no longer referenced. May run in a finalizer, so takes no lock."""
        self._process.release(number)

    # --- The thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    for reply in self._process.receive():
                        self._take(*reply)
            ending = self._process.end()
            if self._is_closed:
                return
            _log.error("alarm: the process that judges has ended (%s); another one begins", ending)
            self._note_death(f"the process that judges ended meanwhile, {_MOST_DEATHS} times ({ending})")
            if not self._start_again():
                return

    def _take(self, name: str, *given: Any) -> None:
        if name == "log":
            _log_here(given[0])
            return
        ticket, value, error, cpu_s = given
        with self._lock:
            request = self._requests.pop(ticket, None)
            self._num_judged += request is not None and request.traced is None
        if request is None or not request.future.set_running_or_notify_cancel():
            return
        if error is not None:
            request.future.set_exception(error)
        else:
            request.future.cpu_s = cpu_s
            request.future.set_result(value)

    def _note_death(self, reason: str) -> None:
        """Fail the jobs that were pending at too many deaths."""
        with self._lock:
            for request in self._requests.values():
                request.deaths += 1
            given_up = [request for request in self._requests.values() if request.deaths >= _MOST_DEATHS]
        self._fail(given_up, reason)

    def _start_again(self) -> bool:
        """Replace the process and hand it the pending jobs; return False once the judge is closed.

        While no process can be started, jobs get a fault.
        """
        reason = ""
        while True:
            for pause_s in _PAUSES_S:
                with self._lock:
                    if self._has_work.wait_for(lambda: self._is_closed, pause_s):
                        return False
                try:
                    process = _Process(*self._configs)
                except Exception as error:  # noqa: BLE001  any exception leaves no judge
                    reason = f"the process that judges cannot be started: {error}"
                    _log.error("%s", reason)
                    continue
                with self._lock:
                    self._process = process
                    for request in self._requests.values():
                        process.begin(request)
                    if self._is_closed:
                        process.outbox.put("end")
                return True
            with self._lock:
                given_up = list(self._requests.values())
            self._fail(given_up, reason)
            with self._lock:
                self._has_work.wait_for(lambda: self._is_closed or self._requests)

    def _fail(self, given_up: list[_Request], reason: str) -> None:
        for request in given_up:
            with self._lock:
                self._requests.pop(request.ticket, None)
            if not request.future.set_running_or_notify_cancel():
                continue
            if request.traced is not None:
                request.future.set_exception(JudgeFault(reason))
                continue
            fault = Verdict.none(Fault("judge", reason), problem_id=request.job.problem.id, id=request.job.id)
            request.future.set_result(replace(fault, level=self.level))


class _Process:
    """One process with a judge, seen from outside."""

    def __init__(self, sandbox_config: SandboxConfig, judge_config: JudgeConfig) -> None:
        """Start it. Raises IsolationError: this host cannot isolate as the settings require. JudgeFault: it died."""
        self._child = ChildProcess("autoclave.judge.process_host")
        self._connection = self._child.connection
        self.outbox = Outbox(self._connection)
        self.id = self._child.id
        self._held: set[int] = set()
        self._ending = threading.Lock()
        try:
            self._connection.send((sandbox_config, judge_config, logging.getLogger().getEffectiveLevel()))
            self.level: Level = self._when_ready()
        except AutoclaveError:  # some are of class OSError, too
            self.end()
            raise
        except (EOFError, OSError):
            raise JudgeFault(f"the process that judges has ended while it started ({self.end()})") from None

    def receive(self) -> list[tuple[Any, ...]]:
        """Return its next messages. Raises EOFError: it has ended."""
        return cast("list[tuple[Any, ...]]", self._connection.recv())

    def begin(self, request: _Request) -> None:
        """Send it a job, after the problem if it does not hold that."""
        if request.number not in self._held:
            self._held.add(request.number)
            self.outbox.put("hold", request.number, request.job.problem)
        job = request.job
        choices = job.id, job.tests, job.stop_at_failure, request.traced
        self.outbox.put("begin", request.ticket, request.number, job.program, *choices)

    def release(self, number: int) -> None:
        """Let it forget a problem. Does not block."""
        if number in self._held:
            self._held.discard(number)
            self.outbox.put("release", number)

    def end(self) -> str:
        """Kill it with all its processes if it runs, and return how it ended."""
        with self._ending:
            code = self._child.end()
            self.outbox.close()  # its messages have no receiver
            self._connection.close()
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def _when_ready(self) -> Level:
        while True:
            for name, given in self.receive():
                if name == "ready":
                    return given
                if name == "refused":
                    raise given
                _log_here(given)


def _log_here(record: logging.LogRecord) -> None:
    logging.getLogger(record.name).handle(record)
