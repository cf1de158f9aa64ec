"""From accepted jobs to verdicts: one thread takes jobs in turn, hands them to the judge, and keeps what comes back.

A job is accepted once its row is in the store; everything in memory here can be made anew from there, which is what
`start` does after a crash. A verdict is kept once: `Store.finish` takes none for a job that ended. A job that was begun
several times without an end, because the server died each time, is not begun again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from autoclave.core import Fault, HostError, InputError, Program, Verdict
from autoclave.core.json import to_plain
from autoclave.judge import Judge, JudgeJob
from autoclave.service.notices import Notices
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.queue import FairQueue, QueueFull, Ticket
from autoclave.service.rates import RateMeter
from autoclave.service.refusals import Refused, busy, draining
from autoclave.service.store import Batch, JobSpec, KeyReused, StartedJob, Store, Waiting

MOST_STARTS = 4
"""A job that was begun so often, and whose end the server never lived to see, gets no verdict."""
_PURGE_EVERY_S = 60.0
_RETRY_WHILE_DRAINING_S = 5.0
_log = logging.getLogger(__name__)

Observer = Callable[[StartedJob, Verdict, float], None]


class Dispatcher:
    """Safe to use from several threads. `slots` is how many programs the judge has at a time; as many again wait in it,
    so that no slot is ever idle.
    """

    def __init__(
        self,
        judge: Judge,
        store: Store,
        notices: Notices,
        queue: FairQueue,
        problems: ProblemCache,
        *,
        slots: int,
        keep_results_s: float,
        observe: Observer,
    ) -> None:
        self.slots = slots
        self._judge = judge
        self._store = store
        self._notices = notices
        self._queue = queue
        self._problems = problems
        self._keep_results_s = keep_results_s
        self._observe = observe
        self._rate = RateMeter()
        self._changed = threading.Condition()
        self._batch_of: dict[str, str] = {}
        self._running: dict[str, tuple[StartedJob, float, Future[Verdict] | None]] = {}
        self._ended: list[tuple[str, Verdict]] = []
        self._reserved: dict[str, int] = {}
        self._is_draining = self._is_stopped = False
        self._next_purge = time.time()
        self._thread = threading.Thread(target=self._work, name="dispatcher", daemon=True)

    # --- From outside ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up what a former process left, and begin."""
        for waiting in self._store.unfinished():
            self._put(waiting)
        self._thread.start()

    def accept(self, batch: Batch, jobs: Sequence[JobSpec]) -> Batch:
        """Make jobs durable and queue them; the batch of an earlier request with the same key instead.

        Raises:
            Refused: there is no room for them, or the server is about to end.
            KeyReused: the key belongs to another request.
        """
        if before := self._store.batch_of_key(batch.client, batch.key):
            if before.fingerprint != batch.fingerprint:
                raise KeyReused(batch.key)
            return before
        with self._room(batch.client, len(jobs)):
            numbered = [(secrets.token_urlsafe(15), spec) for spec in jobs]
            kept = self._store.add_batch(batch, numbered)
            if kept.id == batch.id:  # else the same request came twice at once
                with self._changed:
                    for id, _ in numbered:
                        self._put(Waiting(id, batch.id, batch.client, batch.priority, batch.deadline))
                    self._changed.notify_all()
        return kept

    def cancel(self, ids: Sequence[str]) -> int:
        """Cancel jobs; how many of them had not ended."""
        cancelled = self._store.cancel(ids)
        with self._changed:
            batches = {self._batch_of.pop(id) for id in cancelled if id in self._batch_of}
            futures = [self._running[id][2] for id in cancelled if id in self._running]
            for id in cancelled:
                self._queue.remove(id)
        for future in futures:
            if future is not None:
                future.cancel()
        self._notices.wake(batches)
        return len(cancelled)

    def is_running(self, id: str) -> bool:
        """Whether the judge has it."""
        return id in self._running

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_clients(self) -> int:
        return self._queue.clients

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_stopped

    def per_s(self) -> float:
        """Verdicts per second of late."""
        with self._changed:
            return self._rate.per_s(time.monotonic())

    def drain(self, grace_s: float) -> bool:
        """Begin nothing more, and wait until what runs has ended; False if it had not after so many seconds."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._running and not self._ended, grace_s)

    def refuse_new(self) -> None:
        """Accept and begin nothing more, from now on."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread. What has no verdict stays in the store."""
        with self._changed:
            self._is_draining = self._is_stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def require_accepting(self) -> None:
        """Check that the server takes new work.

        Raises:
            Refused: it is about to end.
        """
        if self._is_draining:
            raise draining(_RETRY_WHILE_DRAINING_S)

    @contextlib.contextmanager
    def _room(self, client: str, count: int) -> Generator[None]:
        """Hold places in the queue while jobs are written."""
        self.require_accepting()
        with self._changed:
            own = self._reserved.get(client, 0)
            try:
                self._queue.require_room(client, count, sum(self._reserved.values()), own)
            except QueueFull as full:
                raise self._busy(full) from None
            self._reserved[client] = own + count
        try:
            yield
        finally:
            with self._changed:
                self._reserved[client] -= count
                if not self._reserved[client]:
                    del self._reserved[client]

    def _busy(self, full: QueueFull) -> Refused:
        """When the client may come again: once so many have ended, of its own or of all, at the rate of late."""
        shared = max(self._queue.clients, 1) if full.is_own_share else 1
        wait_s = self._rate.seconds_for(full.excess * shared, time.monotonic())
        whose = "of yours wait" if full.is_own_share else "wait"
        return busy(f"too many programs {whose} to be judged; there will be room later", wait_s)

    # --- The thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, self._patience_s())
                if self._is_stopped and not self._ended:
                    return
                ended, self._ended = self._ended, []
                expired = self._queue.expire(time.time())
                taken = self._take()
            ended += [(ticket.id, _too_late()) for ticket in expired]
            try:
                self._settle(ended)
                ended = []
                self._begin([ticket.id for ticket in taken])
                taken = []
                self._purge()
            except Exception:  # noqa: BLE001  the disk may be full; the thread must live
                _log.exception("the store failed; what was in hand is tried again")
                self._put_back(ended, taken)

    def _has_work(self) -> bool:
        has_room = len(self._running) < 2 * self.slots and len(self._queue) and not self._is_draining
        deadline = self._queue.next_deadline
        is_late = deadline is not None and deadline <= time.time()
        return bool(self._ended or has_room or is_late or self._is_stopped)

    def _patience_s(self) -> float:
        times = [self._next_purge, *([self._queue.next_deadline] if self._queue.next_deadline is not None else [])]
        return max(min(times) - time.time(), 0.01)

    def _take(self) -> list[Ticket]:
        taken: list[Ticket] = []
        while not self._is_draining and len(self._running) + len(taken) < 2 * self.slots and len(taken) < 256:
            ticket = self._queue.take()
            if ticket is None:
                break
            taken.append(ticket)
        return taken

    def _begin(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        for job in self._store.start(ids):
            with self._changed:
                self._running[job.id] = (job, time.monotonic(), None)
            future = self._submitted(job)
            with self._changed:
                if job.id in self._running:
                    self._running[job.id] = (*self._running[job.id][:2], future)
            future.add_done_callback(partial(self._note_end, job))

    def _submitted(self, job: StartedJob) -> Future[Verdict]:
        """The future of its verdict; what cannot be judged has one at once."""
        try:
            if job.starts > MOST_STARTS:
                fault = Fault("server", f"the server ended {MOST_STARTS} times while it was judged")
                return _done(Verdict.none(fault))
            problem = self._problems.get(job.spec)
            if problem is None:
                return _done(Verdict.none(Fault("problem", "it is not stored any more")))
            spec = job.spec
            program = Program(spec.source.decode("utf-8", "surrogatepass"), spec.language)
            return self._judge.submit(JudgeJob(problem, program, spec.label, spec.tests, spec.stop_at_failure))
        except (InputError, HostError) as error:
            kind = "host" if isinstance(error, HostError) else "problem"
            return _done(Verdict.none(Fault(kind, str(error))))
        except Exception as error:  # noqa: BLE001  a bug must fail its job, not the others
            return _failed(error)

    def _note_end(self, job: StartedJob, future: Future[Verdict]) -> None:
        """In whatever thread it ended. What was cancelled while the judge closed stays in the store."""
        try:
            verdict = future.result()
        except CancelledError:
            with self._changed:
                self._running.pop(job.id, None)
                self._changed.notify_all()
            return
        except Exception as error:  # noqa: BLE001  as in `_submitted`
            _log.error("judging failed", exc_info=error)
            verdict = Verdict.none(Fault("judge", type(error).__name__))
        with self._changed:
            self._ended.append((job.id, verdict))
            self._changed.notify_all()

    def _settle(self, ended: Sequence[tuple[str, Verdict]]) -> None:
        """Keep verdicts, and tell those who wait."""
        if not ended:
            return
        kept = set(self._store.finish([(id, json.dumps(to_plain(verdict))) for id, verdict in ended]))
        batches: set[str] = set()
        with self._changed:
            self._rate.note(time.monotonic(), len(ended))
            for id, verdict in ended:
                running = self._running.pop(id, None)
                if (batch := self._batch_of.pop(id, None)) is not None:
                    batches.add(batch)
                if running is not None and id in kept:
                    self._observe(running[0], verdict, time.monotonic() - running[1])
            self._changed.notify_all()
        self._notices.wake(batches)

    def _purge(self) -> None:
        if time.time() >= self._next_purge:
            self._next_purge = time.time() + _PURGE_EVERY_S
            self._store.purge(time.time() - self._keep_results_s)

    def _put(self, waiting: Waiting) -> None:
        self._batch_of[waiting.id] = waiting.batch
        self._queue.put(Ticket(waiting.id, waiting.client, waiting.priority, waiting.deadline))

    def _put_back(self, ended: list[tuple[str, Verdict]], taken: Sequence[Ticket]) -> None:
        with self._changed:
            self._ended = ended + self._ended
            for ticket in taken:
                if ticket.id not in self._running and ticket.id in self._batch_of:
                    self._queue.put(ticket)
            self._changed.wait_for(lambda: self._is_stopped, 1.0)  # not at once again


def _too_late() -> Verdict:
    return Verdict.none(Fault("deadline", "its deadline came before its turn"))


def _done(verdict: Verdict) -> Future[Verdict]:
    future: Future[Verdict] = Future()
    future.set_result(verdict)
    return future


def _failed(error: Exception) -> Future[Verdict]:
    future: Future[Verdict] = Future()
    future.set_exception(error)
    return future
