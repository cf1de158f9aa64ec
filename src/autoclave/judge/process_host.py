"""The far side of `ProcessJudge`: a `LocalJudge` in a process of its own, and the messages between the two."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

from autoclave.config.levels import Level
from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import AutoclaveError, Problem, Program
from autoclave.judge.interface import JudgeJob
from autoclave.judge.local import LocalJudge

# --- Orders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold:
    """A problem that later orders name by this number."""

    number: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class Release:
    """Forget the problem."""

    number: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A job, or with a `traced` test a trace. The answer has the same ticket."""

    ticket: int
    problem: int
    program: Program
    id: str
    tests: str
    stop_at_failure: bool
    traced: int | None = None

    def job(self, problem: Problem) -> JudgeJob:
        """The job as it was submitted."""
        return JudgeJob(problem, self.program, self.id, self.tests, self.stop_at_failure)


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a job: all its callers have."""

    ticket: int


@dataclass(frozen=True, slots=True)
class End:
    """Cancel what is queued, end what runs, and end."""


Order = Hold | Release | Begin | Cancel | End

# --- Answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The judge works, at this level of isolation."""

    level: Level


@dataclass(frozen=True, slots=True)
class Refusal:
    """The judge does not start, with the reason."""

    error: AutoclaveError


@dataclass(frozen=True, slots=True)
class Answer:
    """A verdict, a trace, or what the judge raised instead."""

    ticket: int
    value: Any = None
    error: BaseException | None = None


Reply = Ready | Refusal | Answer | logging.LogRecord


class Outbox:
    """Messages to the other process, sent in batches by a thread. `put` never blocks, so a finalizer may call it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: Order | Reply) -> None:
        """Queue a message. It is lost if the other process has ended."""
        self._queue.put(message)

    def close(self) -> None:
        """Send all queued messages, then stop."""
        self._queue.put(None)
        self._thread.join()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # the receiving end reports it
            while (message := self._queue.get()) is not None:
                messages = [message]
                with contextlib.suppress(queue.Empty):
                    while (message := self._queue.get_nowait()) is not None:
                        messages.append(message)
                self._connection.send(messages)
                if message is None:
                    return


def serve(end: int) -> None:
    """Judge jobs from the socket `end`, until `End` arrives or the other process has ended."""
    with Connection(end) as connection:
        outbox = Outbox(connection)
        logging.basicConfig(level=logging.NOTSET, handlers=[_Forwarded(outbox)])
        try:
            settings = cast("tuple[SandboxConfig, JudgeConfig, int]", connection.recv())
            logging.getLogger().setLevel(settings[2])
            judge = LocalJudge(*settings[:2])
        except AutoclaveError as error:
            outbox.put(Refusal(error))
            outbox.close()
            return
        with judge, contextlib.suppress(EOFError, OSError):
            outbox.put(Ready(judge.level))
            _Host(judge, outbox).listen(connection)
        outbox.close()


class _Host:
    """Carries out orders, in one thread but for callbacks of futures."""

    def __init__(self, judge: LocalJudge, outbox: Outbox) -> None:
        self._judge = judge
        self._outbox = outbox
        self._problems: dict[int, Problem] = {}
        self._running: dict[int, Future[Any]] = {}

    def listen(self, connection: Connection) -> None:
        """Carry out orders until `End`.

        Raises:
            EOFError: the other process has ended.
        """
        while True:
            for order in cast("list[Order]", connection.recv()):
                match order:
                    case Hold(number, problem):
                        self._problems[number] = problem
                    case Release(number):
                        self._problems.pop(number, None)
                    case Begin():
                        self._begin(order)
                    case Cancel(ticket):
                        if future := self._running.get(ticket):
                            future.cancel()
                    case End():
                        return

    def _begin(self, order: Begin) -> None:
        try:
            job = order.job(self._problems[order.problem])
            future: Future[Any] = (
                self._judge.submit(job) if order.traced is None else self._judge.trace(job, order.traced)
            )
        except Exception as error:  # noqa: BLE001  the answer of one job, not the end of all
            self._outbox.put(Answer(order.ticket, error=_portable(error)))
            return
        self._running[order.ticket] = future
        future.add_done_callback(partial(self._answer, order.ticket))

    def _answer(self, ticket: int, future: Future[Any]) -> None:
        self._running.pop(ticket, None)
        if future.cancelled():
            return
        error = future.exception()
        self._outbox.put(Answer(ticket, error=_portable(error)) if error else Answer(ticket, future.result()))


def _portable(error: BaseException) -> BaseException:
    """Return an error that can be sent: not every exception class can be rebuilt from its message."""
    return error if isinstance(error, AutoclaveError) else RuntimeError(f"{type(error).__name__}: {error}")


class _Forwarded(logging.handlers.QueueHandler):
    """Forwards log records to the other process."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(cast("Any", outbox))
        self._outbox = outbox

    def enqueue(self, record: logging.LogRecord) -> None:
        self._outbox.put(record)
