"""From accepted jobs to verdicts: one thread claims jobs whose turn it is, hands them to the judge, keeps verdicts.

A job is accepted once its row is in the store, where it waits for its turn; this node only has what it claimed. A
verdict is kept once: `Store.finish` takes none for a job that ended. A job that was begun several times without an end,
because the server died each time, is not begun again. News come from the store, of this node's deeds and of others'.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from autoclave.core import Fault, HostError, InputError, Program, Verdict
from autoclave.core.json import to_plain
from autoclave.judge import Judge, JudgeJob
from autoclave.service.notices import Notices
from autoclave.service.problem_cache import ProblemCache
from autoclave.service.rates import RateMeter, seconds_for
from autoclave.service.refusals import RecentRefusals, Refused, busy, draining
from autoclave.service.store import (
    Batch,
    Bounds,
    Event,
    JobSpec,
    KeyReused,
    News,
    QueueFull,
    StartedJob,
    Store,
    StoreAway,
)

MOST_STARTS = 4
"""A job that was begun so often, and whose end the server never lived to see, gets no verdict."""
_PURGE_EVERY_S = 60.0
_RETRY_WHILE_DRAINING_S = 5.0
_AHEAD_S = 0.1
"""What is judged in so long is in hand: short programs are claimed, and their verdicts kept, several at a time."""
_GATHER_S = 0.05
"""Verdicts wait so long for others that are about to come, while the judge has work: one transaction keeps them all."""
_PAUSE_S = 1.0
"""Between two tries while the store fails."""
_log = logging.getLogger(__name__)

Observer = Callable[[StartedJob, Verdict, float], None]


class Dispatcher:
    """Safe to use from several threads. `slots` is how many programs the judge has at a time; as many again wait in it,
    or what is judged in `_AHEAD_S`, so that no slot is ever idle.
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
        self._ended: list[tuple[str, Verdict]] = []
        self._settle_at = 0.0
        """When, by the monotonic clock, the first of `_ended` has waited long enough."""
        self._may_wait = True
        self._is_unsure = self._are_cancelled = False
        self._next_deadline: float | None = 0.0
        self._is_draining = self._is_stopped = False
        self._next_purge = time.time()
        self._thread = threading.Thread(target=self._work, name="dispatcher", daemon=True)

    # --- From outside ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._store.listen(self.hear)
        self._thread.start()

    def hear(self, event: Event) -> None:
        """Something happened in the store."""
        with self._changed:
            if event.news in (News.WAITING, News.UNKNOWN):
                self._may_wait, self._next_deadline = True, 0.0
            if event.news in (News.CANCELLED, News.UNKNOWN):
                self._are_cancelled = True
            self._changed.notify_all()
        if event.news is News.ENDED:
            self._notices.wake([event.batch])
        elif event.news is News.UNKNOWN:
            self._notices.wake_all()

    def recheck(self) -> None:
        """Look whether jobs wait, were cancelled, or are taken to be here and are not, though nobody said so."""
        with self._changed:
            self._may_wait = self._are_cancelled = self._is_unsure = True
            self._changed.notify_all()

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
        self.require_room(batch.client, len(jobs))
        try:
            return self._store.add_batch(batch, [(secrets.token_urlsafe(15), spec) for spec in jobs], self._bounds)
        except QueueFull as full:
            refusal = self._busy(full)
            self._recent_refusals.note(batch.client, len(jobs), refusal, time.monotonic())
            raise refusal from None

    def cancel(self, ids: Sequence[str]) -> int:
        """Cancel jobs, wherever they are judged; how many of them had not ended."""
        return len(self._store.cancel(ids))

    def share(self) -> tuple[int, int]:
        """Programs that wait for this node: all that do, or its share of them if there are others; and how many all
        nodes judge at a time. Asks the store.
        """
        load = self._store.load()
        all_slots = self.slots + load.slots
        return -(-load.waiting * self.slots // all_slots), all_slots

    @property
    def num_waiting(self) -> int:
        """The first of `share`."""
        return self.share()[0]

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_clients(self) -> int:
        """Clients that wait. Asks the store."""
        return self._store.load().clients

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

    def require_room(self, client: str, count: int) -> None:
        """Check, as far as that costs nothing, that so many programs of a client could be accepted.

        Raises:
            Refused: as many of the client's were refused a moment ago, or the server is about to end.
        """
        self.require_accepting()
        if refusal := self._recent_refusals.get(client, count, time.monotonic()):
            raise refusal

    def has_refused(self, now: float) -> bool:
        """Whether there was no room for somebody's programs a moment ago, by the monotonic clock."""
        return self._recent_refusals.has_any(now)

    def _busy(self, full: QueueFull) -> Refused:
        """When the client may come again: once so many have ended, of its own or of all, at the rate of late."""
        load = self._store.load()
        shared = max(load.clients, 1) if full.is_own_share else 1
        wait_s = seconds_for(full.excess * shared, self.per_s() + load.per_s)
        whose = "of yours wait" if full.is_own_share else "wait"
        return busy(f"too many programs {whose} to be judged; there will be room later", wait_s)

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
            except StoreAway:
                self._try_again_later(ended)
            except Exception:  # noqa: BLE001  the disk may be full; the thread must live
                _log.exception("the store failed; what was in hand is tried again")
                self._try_again_later(ended)

    def _has_work(self) -> bool:
        is_late = self._next_deadline is not None and self._next_deadline <= time.time()
        is_late |= self._next_purge <= time.time()
        has_turn = self._may_wait and self._room() > 0
        must_look = is_late or self._are_cancelled or self._is_unsure or self._is_stopped
        return bool(self._must_settle() or has_turn or must_look)

    def _must_settle(self) -> bool:
        """Whether verdicts wait no longer for more: half of what may be in hand is back, or nothing will come."""
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
        """Jobs whose deadline came before their turn."""
        with self._changed:
            due, self._next_deadline = self._next_deadline, None
        now = time.time()
        is_due = due is not None and due <= now
        soonest = self._store.expire(now, _written(_TOO_LATE)) if is_due else due
        with self._changed:
            known = self._next_deadline  # of a job that came meanwhile
            self._next_deadline = min((at for at in (soonest, known) if at is not None), default=None)

    def _begin(self) -> None:
        with self._changed:
            room = self._room()
            if room <= 0 or not self._may_wait:
                return
            self._may_wait = False
        self._is_unsure = True  # of what is ours, until all that was claimed is in hand
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
        """The future of its verdict; what cannot be judged has one at once.

        Raises:
            StoreAway: its problem cannot be read now.
        """
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
        except StoreAway:
            raise
        except Exception as error:  # noqa: BLE001  a bug must fail its job, not the others
            return _failed(error)

    def _note_end(self, job: StartedJob, future: Future[Verdict]) -> None:
        """In whatever thread it ended. What was cancelled while the judge closed is given back."""
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
            if not self._ended:
                self._settle_at = time.monotonic() + _GATHER_S
            self._ended.append((job.id, verdict))
            self._changed.notify_all()

    def _settle(self, ended: Sequence[tuple[str, Verdict]]) -> None:
        """Keep verdicts. Those who wait hear of it from the store."""
        if not ended:
            return
        kept = set(self._store.finish([(id, _written(verdict)) for id, verdict in ended]))
        with self._changed:
            self._rate.note(time.monotonic(), len(ended))
            for id, verdict in ended:
                running = self._running.pop(id, None)
                if running is not None and id in kept:
                    self._observe(running[0], verdict, time.monotonic() - running[1])
            self._changed.notify_all()

    def _give_back(self) -> None:
        """After a failure nobody knows whether the last claim was one."""
        if self._is_unsure:
            self._is_unsure = False
            try:
                self._store.give_back(set(self._running))
            except BaseException:
                self._is_unsure = True
                raise

    def _stop_cancelled(self) -> None:
        """What was cancelled, or judged by another node that took this one for dead, need not go on."""
        with self._changed:
            if not self._are_cancelled:
                return
            self._are_cancelled = False
            ids = list(self._running)
        for id in self._store.ended_among(ids):
            if running := self._running.get(id):
                running[2].cancel()

    def _purge(self) -> None:
        if time.time() >= self._next_purge:
            self._next_purge = time.time() + _PURGE_EVERY_S
            self._store.purge(time.time() - self._keep_results_s)

    def _try_again_later(self, ended: list[tuple[str, Verdict]]) -> None:
        with self._changed:
            self._ended = ended + self._ended
            self._may_wait = self._are_cancelled = True
            self._next_deadline = 0.0
            self._changed.wait_for(lambda: self._is_stopped, _PAUSE_S)
            if self._is_stopped:
                self._ended = []  # they are judged again


_TOO_LATE = Verdict.none(Fault("deadline", "its deadline came before its turn"))


def _written(verdict: Verdict) -> str:
    return json.dumps(to_plain(verdict))


def _done(verdict: Verdict) -> Future[Verdict]:
    future: Future[Verdict] = Future()
    future.set_result(verdict)
    return future


def _failed(error: Exception) -> Future[Verdict]:
    future: Future[Verdict] = Future()
    future.set_exception(error)
    return future
