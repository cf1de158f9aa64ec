"""From accepted jobs to verdicts: one thread claims queued jobs, passes them to the judge and stores verdicts.

A job is accepted once its row is in the store, where it is queued; a node holds only the jobs that it claimed. A
verdict is stored once: `Store.finish` ignores jobs that have ended. A job during which the server died `MOST_STARTS`
times is not started again. Events come from the store, for changes by this node and by others.
"""

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial

from autoclave.core import Fault, HostError, InputError, Program, Verdict
from autoclave.core.futures import completed
from autoclave.core.json import to_plain
from autoclave.judge import Judge, JudgeJob
from autoclave.service.loop_thread import Notices
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.rates import RateMeter, seconds_for
from autoclave.service.refusals import RecentRefusals, Refused, busy, draining
from autoclave.service.store.records import (
    Batch,
    Bounds,
    Event,
    EventKind,
    JobSpec,
    Load,
    QueueFull,
    StartedJob,
    StoreUnavailable,
)
from autoclave.service.store.sql import Store

MOST_STARTS = 4
"""A job during which the server died this many times gets no verdict."""
_PURGE_EVERY_S = 60.0
_RETRY_WHILE_DRAINING_S = 5.0
_AHEAD_S = 0.1
"""Jobs for this many seconds are claimed ahead, so that short programs are claimed and stored several at a time."""
_GATHER_S = 0.05
"""While the judge has work, verdicts wait this long for more, so that one transaction stores several."""
_PAUSE_S = 1.0
"""Seconds between two tries while the store fails."""
_log = logging.getLogger(__name__)

Observer = Callable[[StartedJob, Verdict, float, float], None]
"""Called with a job, its verdict, the seconds in the judge, and CPU seconds."""
_Ended = tuple[StartedJob, Verdict, float]
"""A job, its verdict, and the CPU seconds that it took."""


class Dispatcher:
    """Safe to use from several threads. The judge runs `slots` programs at a time; as many more are queued in it, or
    what it judges in `_AHEAD_S`, so that no slot is idle.
    """

    def __init__(
        self,
        judge: Judge,
        store: Store,
        notices: Notices,
        bounds: Bounds,
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
        self._bounds = bounds
        self._problems = problems
        self._keep_results_s = keep_results_s
        self._observe = observe
        self._rate = RateMeter()
        self._recent_refusals = RecentRefusals()
        self._changed = threading.Condition()
        self._running: dict[str, tuple[StartedJob, float, Future[Verdict]]] = {}
        self._ended: list[_Ended] = []
        self._settle_at = 0.0
        """Monotonic time at which `_ended` must be stored."""
        self._may_wait = True
        self._is_unsure = self._are_cancelled = False
        self._next_deadline: float | None = 0.0
        self._is_draining = self._is_stopped = False
        self._next_purge = time.time()
        self._thread = threading.Thread(target=self._work, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Subscribe to the store and start the thread."""
        self._store.subscribe(self.on_event)
        self._thread.start()

    def on_event(self, event: Event) -> None:
        with self._changed:
            if event.kind in (EventKind.WAITING, EventKind.UNKNOWN):
                self._may_wait, self._next_deadline = True, 0.0
            if event.kind in (EventKind.CANCELLED, EventKind.UNKNOWN):
                self._are_cancelled = True
            self._changed.notify_all()
        if event.kind is EventKind.ENDED:
            self._notices.wake(event.batch)
        elif event.kind is EventKind.UNKNOWN:
            self._notices.wake()

    def recheck(self) -> None:
        """Check for queued jobs, cancelled jobs and lost claims without an event."""
        with self._changed:
            self._may_wait = self._are_cancelled = self._is_unsure = True
            self._changed.notify_all()

    def accept(self, batch: Batch, jobs: Sequence[JobSpec], share: int | None = None) -> Batch:
        """Store and queue jobs, or return the batch of an earlier request with the same key. `share` is how many jobs
        of the client may be queued, if that is fewer than for others.

        Raises Refused: the queue is full. KeyReused: the key belongs to another request.
        """
        total, of_client = self._bounds.total, self._bounds.of_client
        bounds = Bounds(total, of_client if share is None else min(share, of_client))
        try:
            return self._store.add_batch(batch, [(secrets.token_urlsafe(15), spec) for spec in jobs], bounds)
        except QueueFull as full:
            refusal = self._busy(full)
            self._recent_refusals.note(batch.client, len(jobs), refusal, time.monotonic())
            raise refusal from None

    def load(self) -> Load:
        """Return this node's share of the queued programs, and clients and slots of all nodes. Queries the store."""
        load = self._store.load()
        slots = self.slots + load.slots
        return replace(load, waiting=-(-load.waiting * self.slots // slots), slots=slots)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive() and not self._is_stopped

    def per_s(self) -> float:
        with self._changed:
            return self._rate.per_s(time.monotonic())

    def drain(self, grace_s: float) -> bool:
        """Start no more jobs, and wait until running ones have ended; return False after `grace_s` seconds."""
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._running and not self._ended, grace_s)

    def stop(self) -> None:
        """End the thread. Jobs without a verdict stay in the store."""
        with self._changed:
            self._is_draining = self._is_stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def require_accepting(self) -> None:
        """Raise `Refused` if the server is shutting down."""
        if self._is_draining:
            raise draining(_RETRY_WHILE_DRAINING_S)

    def require_room(self, client: str, count: int) -> None:
        """As `require_accepting`; also raise `Refused` if as many programs of the client were refused recently."""
        self.require_accepting()
        if refusal := self._recent_refusals.get(client, count, time.monotonic()):
            raise refusal

    def has_refused(self, now: float) -> bool:
        return self._recent_refusals.has_any(now)

    def _busy(self, full: QueueFull) -> Refused:
        """Return a refusal that is to be retried once enough jobs have ended at the recent rate."""
        load = self._store.load()
        shared = max(load.clients, 1) if full.is_own_share else 1
        wait_s = seconds_for(full.excess * shared, self.per_s() + load.per_s)
        whose = "of yours wait" if full.is_own_share else "wait"
        cause = "own_queue" if full.is_own_share else "queue"
        return busy(f"too many programs {whose} to be judged. Fix: retry later", wait_s, cause)

    # --- The thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._has_work():
                    self._changed.wait(self._patience_s())
                if self._is_stopped and not self._ended:
                    return
                ended, self._ended = self._ended, []
            try:
                self._settle(ended)
                ended = []
                self._give_back()
                self._stop_cancelled()
                self._expire()
                self._begin()
                self._purge()
            except StoreUnavailable:
                self._try_again_later(ended)
            except Exception:  # noqa: BLE001  the disk may be full; the thread must go on
                _log.exception("the store failed; retrying")
                self._try_again_later(ended)

    def _has_work(self) -> bool:
        is_late = self._next_deadline is not None and self._next_deadline <= time.time()
        is_late |= self._next_purge <= time.time()
        has_turn = self._may_wait and self._room() > 0
        must_look = is_late or self._are_cancelled or self._is_unsure or self._is_stopped
        return bool(self._must_settle() or has_turn or must_look)

    def _must_settle(self) -> bool:
        """Return whether to store verdicts now: half of the claimed jobs have ended, or no more are running."""
        if not self._ended:
            return False
        num_left = len(self._running) - len(self._ended)
        return len(self._ended) >= self._most_in_hand() // 2 or num_left == 0 or time.monotonic() >= self._settle_at

    def _patience_s(self) -> float:
        times = [self._next_purge, *([self._next_deadline] if self._next_deadline is not None else [])]
        left_s = min(times) - time.time()
        if self._ended:
            left_s = min(left_s, self._settle_at - time.monotonic())
        return max(left_s, 0.001)

    def _room(self) -> int:
        return 0 if self._is_draining else self._most_in_hand() - len(self._running)

    def _most_in_hand(self) -> int:
        return max(2 * self.slots, int(self._rate.per_s(time.monotonic()) * _AHEAD_S))

    def _expire(self) -> None:
        """End jobs whose deadline has passed while they were queued."""
        with self._changed:
            due, self._next_deadline = self._next_deadline, None
        now = time.time()
        is_due = due is not None and due <= now
        soonest = self._store.expire(now, _written(_TOO_LATE)) if is_due else due
        with self._changed:
            known = self._next_deadline  # of a job accepted meanwhile
            self._next_deadline = min((at for at in (soonest, known) if at is not None), default=None)

    def _begin(self) -> None:
        with self._changed:
            room = self._room()
            if room <= 0 or not self._may_wait:
                return
            self._may_wait = False
        self._is_unsure = True  # of the claims, until all of them are in `_running`
        claimed = self._store.claim(room, time.time())
        for job in claimed:
            future = self._submitted(job)
            with self._changed:
                self._running[job.id] = (job, time.monotonic(), future)
            future.add_done_callback(partial(self._note_end, job))
        self._is_unsure = False
        if len(claimed) == room:
            with self._changed:
                self._may_wait = True

    def _submitted(self, job: StartedJob) -> Future[Verdict]:
        """Submit a job to the judge; one that cannot be judged gets its verdict at once. Raises `StoreUnavailable`."""
        try:
            if job.starts > MOST_STARTS:
                fault = Fault("server", f"the server died {MOST_STARTS} times while it judged the program")
                return completed(Verdict.none(fault))
            problem = self._problems.get(job.spec)
            if problem is None:
                return completed(Verdict.none(Fault("problem", "the problem is not stored any more")))
            spec = job.spec
            program = Program(spec.source.decode("utf-8", "surrogatepass"), spec.language)
            return self._judge.submit(JudgeJob(problem, program, spec.label, spec.tests, spec.stop_at_failure))
        except (InputError, HostError) as error:
            kind = "host" if isinstance(error, HostError) else "problem"
            return completed(Verdict.none(Fault(kind, str(error))))
        except StoreUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  a bug must fail its own job only
            return completed(_verdict_after_bug(error))

    def _note_end(self, job: StartedJob, future: Future[Verdict]) -> None:
        """Take the end of a job, in any thread. A job cancelled because the judge closes goes back to the queue."""
        try:
            verdict = future.result()
        except CancelledError:
            with self._changed:
                self._running.pop(job.id, None)
                self._changed.notify_all()
            return
        except Exception as error:  # noqa: BLE001  as in `_submitted`
            verdict = _verdict_after_bug(error)
        known_s: float | None = getattr(future, "cpu_s", None)  # of a cached verdict it is not known
        cpu_s = sum(test.cpu_s for test in verdict.tests) if known_s is None else known_s
        with self._changed:
            if not self._ended:
                self._settle_at = time.monotonic() + _GATHER_S
            self._ended.append((job, verdict, cpu_s))
            self._changed.notify_all()

    def _settle(self, ended: Sequence[_Ended]) -> None:
        if not ended:
            return
        used = {job.id: (job.client, cpu_s) for job, _, cpu_s in ended}
        kept = set(self._store.finish([(job.id, _written(verdict)) for job, verdict, _ in ended], used))
        with self._changed:
            self._rate.note(time.monotonic(), len(ended))
            for job, verdict, cpu_s in ended:
                running = self._running.pop(job.id, None)
                if running is not None and job.id in kept:
                    self._observe(job, verdict, time.monotonic() - running[1], cpu_s)
            self._changed.notify_all()

    def _give_back(self) -> None:
        """After a failed claim, whose outcome is unknown, return all jobs that are not running."""
        if self._is_unsure:
            self._is_unsure = False
            try:
                self._store.give_back(set(self._running))
            except BaseException:
                self._is_unsure = True
                raise

    def _stop_cancelled(self) -> None:
        """Stop jobs that were cancelled, or judged by another node that took this one for dead."""
        with self._changed:
            if not self._are_cancelled:
                return
            self._are_cancelled = False
            ids = list(self._running)
        running = [self._running[id] for id in self._store.ended_among(ids) if id in self._running]
        if spent := [(job.client, time.monotonic() - since) for job, since, future in running if future.cancel()]:
            self._store.charge(*spent)

    def _purge(self) -> None:
        if time.time() >= self._next_purge:
            self._next_purge = time.time() + _PURGE_EVERY_S
            self._store.purge(time.time() - self._keep_results_s)

    def _try_again_later(self, ended: list[_Ended]) -> None:
        with self._changed:
            self._ended = ended + self._ended
            self._may_wait = self._are_cancelled = True
            self._next_deadline = 0.0
            self._changed.wait_for(lambda: self._is_stopped, _PAUSE_S)
            if self._is_stopped:
                self._ended = []  # other nodes judge them again


_TOO_LATE = Verdict.none(Fault("deadline", "its deadline passed while it was queued"))


def _written(verdict: Verdict) -> str:
    return json.dumps(to_plain(verdict))


def _verdict_after_bug(error: Exception) -> Verdict:
    _log.error("judging failed", exc_info=error)
    return Verdict.none(Fault("judge", type(error).__name__))
