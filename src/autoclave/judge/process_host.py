"""The far side of `ProcessJudge`: a `LocalJudge` in a process of its own.

Messages go in batches, each a tuple of a name and arguments. To here: `hold`, `release`, `begin`, `cancel`, as the
methods of `_Host`, and `end`. From here: `ready` with the level or `refused` with an error, `answer` with the ticket,
the value, the error and the CPU seconds, and `log` with a record.
"""

import contextlib
import logging
import logging.handlers
import queue
import threading
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

from autoclave.config.sandbox import JudgeConfig, SandboxConfig
from autoclave.core import AutoclaveError, Problem, Program
from autoclave.judge.interface import JudgeJob
from autoclave.judge.local import LocalJudge


class Outbox:
    """Messages to the other process, sent in batches by a thread. `put` never blocks, so a finalizer may call it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="outbox", daemon=True)
        self._thread.start()

    def put(self, *message: Any) -> None:
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
    """Judge jobs from the socket `end`, until `end` arrives or the other process has ended."""
    with Connection(end) as connection:
        outbox = Outbox(connection)
        logging.basicConfig(level=logging.NOTSET, handlers=[Forwarding(outbox)])
        try:
            settings = cast("tuple[SandboxConfig, JudgeConfig, int]", connection.recv())
            logging.getLogger().setLevel(settings[2])
            judge = LocalJudge(*settings[:2])
        except AutoclaveError as error:
            outbox.put("refused", error)
            outbox.close()
            return
        except (EOFError, ConnectionError):  # the other process has ended
            return
        with judge, contextlib.suppress(EOFError, OSError):
            outbox.put("ready", judge.level)
            _Host(judge, outbox).listen(connection)
        outbox.close()


class _Host:
    """Carries out messages, in one thread but for callbacks of futures."""

    def __init__(self, judge: LocalJudge, outbox: Outbox) -> None:
        self._judge = judge
        self._outbox = outbox
        self._problems: dict[int, Problem] = {}
        self._running: dict[int, Future[Any]] = {}

    def listen(self, connection: Connection) -> None:
        """Carry out messages until `end`. Raises EOFError: the other process has ended."""
        while True:
            for name, *arguments in cast("list[tuple[Any, ...]]", connection.recv()):
                if name == "end":
                    return
                getattr(self, name)(*arguments)

    def hold(self, number: int, problem: Problem) -> None:
        """Keep a problem that later jobs name by this number."""
        self._problems[number] = problem

    def release(self, number: int) -> None:
        self._problems.pop(number, None)

    def begin(self, ticket: int, number: int, program: Program, *rest: Any) -> None:
        """Submit a job; `rest` are its id, choice of tests, whether to stop at a failure, and the test to trace."""
        *choices, traced = rest
        try:
            job = JudgeJob(self._problems[number], program, *choices)
            future: Future[Any] = self._judge.submit(job) if traced is None else self._judge.trace(job, traced)
        except Exception as error:  # noqa: BLE001  the answer of one job, not the end of all
            self._outbox.put("answer", ticket, None, _portable(error), None)
            return
        self._running[ticket] = future
        future.add_done_callback(partial(self._answer, ticket))

    def cancel(self, ticket: int) -> None:
        """Cancel a job: all its callers have."""
        if future := self._running.get(ticket):
            future.cancel()

    def _answer(self, ticket: int, future: Future[Any]) -> None:
        self._running.pop(ticket, None)
        if not future.cancelled():
            error = future.exception()
            result = (None, _portable(error)) if error else (future.result(), None)
            self._outbox.put("answer", ticket, *result, getattr(future, "cpu_s", None))


def _portable(error: BaseException) -> BaseException:
    """Return an error that can be sent: not every exception class can be rebuilt from its message."""
    return error if isinstance(error, AutoclaveError) else RuntimeError(f"{type(error).__name__}: {error}")


class Forwarding(logging.handlers.QueueHandler):
    """Forwards log records to the other process."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(cast("Any", outbox))
        self._outbox = outbox

    def enqueue(self, record: logging.LogRecord) -> None:
        self._outbox.put("log", record)
