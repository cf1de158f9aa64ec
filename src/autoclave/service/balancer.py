"""Distribute queued programs to servers with free slots; after a failure, another server takes over.

A batch stays with the server that accepted it while no other server is available: accepted batches survive the death of
a server process. Where it is unknown whether a batch was accepted, it is sent again under the same idempotency key.
While no server takes or judges programs, all wait, for `patience_s`. Each future gets one verdict: the first from any
server, or, after that, after `retries` failures or the deadline, one with a fault that names the server.
"""

import asyncio
import contextlib
import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from autoclave.config import RemoteJudgeConfig
from autoclave.core import ConfigError, DataError, Fault, HostError, InputError, IsolationError, Verdict
from autoclave.core.json import from_plain
from autoclave.judge import JudgeJob
from autoclave.service.server_link import Need, Rejected, ServerLink, Unavailable, UnknownProblem

KEPT_S = 60.0
"""Seconds for which a server keeps the jobs of a disconnected client."""
_REQUEST_BYTES = 8 << 20
_TICK_S = 1.0
_CANCEL_S, _LOOK_S = 2.0, 0.01
_REFRESH_EVERY_S = 5.0
_EARLY_S = 1.0
_FINAL_FAULTS = ("problem", "host", "deadline")
"""Kinds of faults that another try would repeat."""
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Pending:
    """A job without a verdict. Times are by the clock of the loop."""

    job: JudgeJob
    need: Need
    future: Future[Verdict]
    deadline: float
    failures: int = 0
    reason: str = ""
    remote: tuple[ServerLink, str] | None = None


@dataclass(slots=True)
class _Submission:
    """A batch at a server, with its unfinished jobs by index."""

    link: ServerLink
    left: dict[int, Pending]
    num_held: int = 0
    """Jobs of this batch that are counted in `link.num_in_flight`."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    jobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    batch: str = ""
    after: int = 0

    def count(self) -> None:
        self.link.num_in_flight += len(self.left) - self.num_held
        self.num_held = len(self.left)

    def restart(self) -> None:
        """Turn the unfinished jobs into a new batch."""
        self.left = dict(enumerate(self.left.values()))
        self.key, self.jobs, self.batch, self.after = secrets.token_urlsafe(18), [], "", 0


class Balancer:
    """For the tasks of one event loop; any thread may wait for the futures."""

    def __init__(self, links: Sequence[ServerLink], config: RemoteJudgeConfig) -> None:
        self._links = links
        self._config = config
        self._pending: deque[Pending] = deque()
        self._unsettled: deque[Pending] = deque()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._submissions: list[_Submission] = []
        self._refreshed_at = 0.0
        self._is_closed = False
        self._silent_since: float | None = None
        self._silence = ""
        self.num_judged = 0

    @property
    def num_pending(self) -> int:
        return sum(not pending.future.done() for pending in self._unsettled)

    def note_silence(self, link: ServerLink, reason: str) -> bool:
        """Record that a server failed. Returns whether that leaves none: failures then cost patience, not retries."""
        if any(not (other.failures or other.is_excluded) for other in self._links):
            return False
        self._silence = f"{link.url}: {reason}"
        if self._silent_since is None:
            self._silent_since = asyncio.get_running_loop().time()
            _log.warning("waiting up to %g s for a judge server: %s", self._config.patience_s, self._silence)
        return True

    def note_work(self) -> None:
        """Record that a server took programs or told of them."""
        if self._silent_since is not None:
            waited_s = asyncio.get_running_loop().time() - self._silent_since
            _log.warning("a judge server works again after %.0f s", waited_s)
            self._silent_since = None

    def add(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._unsettled.append(pending)
        self._changed.set()

    def cancel(self, pending: Pending) -> None:
        """Cancel the job at its server; its future was cancelled."""
        if pending.remote is not None and not self._is_closed:
            link, job = pending.remote
            self.spawn(link.cancel(f"/v1/jobs/{job}"))

    async def run(self) -> None:
        """Distribute programs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):  # `wait_for` can swallow a cancellation
                    await self._changed.wait()
            self._changed.clear()
            self._expire()
            self._distribute()

    async def close(self) -> None:
        """End all requests, and cancel all batches at the servers, also those that a server is about to accept."""
        if self._is_closed:
            return
        self._is_closed, now = True, asyncio.get_running_loop().time
        for pending in self._unsettled:
            pending.future.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                while any(one.jobs and not one.batch and one.link.available_at <= now() for one in self._submissions):
                    await asyncio.sleep(_LOOK_S)
        batches = [(sent.link, sent.batch) for sent in self._submissions if sent.batch]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cancels = [link.cancel(f"/v1/batches/{batch}") for link, batch in batches]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await asyncio.gather(*cancels)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task that `close` cancels."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wait_s(self) -> float:
        now = asyncio.get_running_loop().time()
        waits = [link.available_at - now for link in self._links if link.available_at > now] if self._pending else []
        return min([_TICK_S, *waits])

    def _expire(self) -> None:
        """End programs after their deadline, or after `patience_s` without a server, in the order of submission."""
        now = asyncio.get_running_loop().time()
        deadline_s, patience_s = self._config.deadline_s, self._config.patience_s
        is_given_up = self._silent_since is not None and now - self._silent_since >= patience_s
        while self._unsettled:
            pending = self._unsettled[0]
            if pending.future.done():
                pass
            elif pending.deadline <= now:
                self._fail([pending], "deadline", f"no verdict within {deadline_s:g} s")
                self.cancel(pending)
            elif is_given_up and now - (pending.deadline - deadline_s) >= patience_s:
                self._fail([pending], "server", f"no server for {patience_s:g} s; {self._silence}")
            else:
                return
            self._unsettled.popleft()

    def _distribute(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._pending and now >= self._refreshed_at + _REFRESH_EVERY_S:
            self._refreshed_at = now
            for link in self._links:
                if link.num_in_flight and not link.failures:
                    self.spawn(self._refresh(link))
        for link in self._links:
            if link.failures and not link.is_excluded and link.available_at <= now:
                self.spawn(self._refresh(link))
        if all(link.is_excluded for link in self._links):
            self._fail(self._pending, "server", "no server is usable any more")
            self._pending.clear()
        while self._pending:
            able = [link for link in self._links if link.available_at <= now and self._can_take_enough(link)]
            total, num_waiting = sum(link.num_free for link in able), len(self._pending)
            if not total:
                return
            for link in sorted(able, key=lambda link: -link.num_free):
                share = min(math.ceil(num_waiting * link.num_free / total), link.num_free)
                if jobs := self._next(min(share, self._config.programs_per_request, link.batch_limit)):
                    self._spawn_submission(link, jobs)

    def _spawn_submission(self, link: ServerLink, jobs: Sequence[Pending]) -> None:
        sent = _Submission(link, dict(enumerate(jobs)))
        sent.count()
        self.spawn(self._submit(sent))

    async def _refresh(self, link: ServerLink) -> None:
        """Refresh the state of a server; one that failed is used again once it responds."""
        if link.is_refreshing:
            return
        link.is_refreshing = True
        try:
            await link.refresh()
            link.note_success()
        except Unavailable as error:
            link.note_failure(asyncio.get_running_loop().time(), error.wait_s)
            self.note_silence(link, str(error))
        except (ConfigError, IsolationError) as error:
            _log.error("%s is not used any more: %s", link.url, error)
            link.is_excluded = True
        finally:
            link.is_refreshing = False
            self._changed.set()

    def _can_take_enough(self, link: ServerLink) -> bool:
        """Return whether it can take all programs or half of its window: a request per program would cost too much."""
        return link.num_free >= min(len(self._pending), max(link.window // 2, 1))

    def _next(self, count: int) -> list[Pending]:
        jobs: list[Pending] = []
        size = 0
        while self._pending and len(jobs) < count and size < _REQUEST_BYTES:
            pending = self._pending.popleft()
            if not pending.future.done():
                jobs.append(pending)
                size += len(pending.job.program.source)
        return jobs

    async def _submit(self, sent: _Submission) -> None:
        """Have a batch judged; unfinished jobs are queued again."""
        link = sent.link
        self._submissions.append(sent)
        try:
            while sent.left and not await self._try_once(sent):
                await asyncio.sleep(max(link.available_at - asyncio.get_running_loop().time(), 0))
                self._drop_settled(sent)  # deadlines may have passed during the pause
        except Exception as error:  # noqa: BLE001  after a bug, futures must still end
            _log.exception("a request to %s failed", link.url)
            self._fail(sent.left.values(), "client", f"{type(error).__name__}")
        finally:
            self._submissions.remove(sent)
            self._pending.extendleft(reversed([left for left in sent.left.values() if not left.future.done()]))
            sent.left = {}
            sent.count()
            self._changed.set()

    async def _try_once(self, sent: _Submission) -> bool:
        """Send the batch once. False: send it again to the same server."""
        link, now = sent.link, asyncio.get_running_loop().time
        try:
            if link.info is None:
                await link.refresh()
            await link.ensure([pending.need for pending in sent.left.values()])
            await self._follow(sent)
            return True
        except Unavailable as error:
            return self._hands_over(sent, error)
        except UnknownProblem:
            link.known.difference_update({pending.need.key for pending in sent.left.values()})
            self._failed_once(sent, "it lost a problem")
            sent.restart()
            return False
        except (ConfigError, IsolationError) as error:
            _log.error("%s is not used any more: %s", link.url, error)
            link.is_excluded = True
            self._failed_once(sent, str(error))
            return True
        except (InputError, HostError, Rejected) as error:
            if sent.batch and isinstance(error, Rejected) and error.kind == "not_found":
                link.note_failure(now())  # it lost its store
                self._failed_once(sent, "it lost an accepted batch")
                return True
            self._refused(sent, error)
            return True

    def _hands_over(self, sent: _Submission, error: Unavailable) -> bool:
        """After a failure, return whether other servers take the batch over."""
        link = sent.link
        link.note_unavailable(asyncio.get_running_loop().time(), error)
        if error.is_busy:
            self.note_work()
        elif not self.note_silence(link, str(error)):
            self._failed_once(sent, str(error))
        return any(other is not link and not other.is_excluded and not other.failures for other in self._links)

    async def _follow(self, sent: _Submission) -> None:
        link = sent.link
        events: AsyncGenerator[dict[str, Any]]
        events = link.watch(sent.batch, sent.after) if sent.batch else link.judge(self._body(sent), sent.key)
        async with aclosing(events) as stream:
            async for event in stream:
                link.note_success()
                self.note_work()
                if event["event"] == "batch":
                    sent.batch = event["batch"]
                    for place, pending in sent.left.items():
                        pending.remote = (link, event["jobs"][place])
                        if pending.future.cancelled():
                            self.cancel(pending)
                elif event["event"] == "job":
                    sent.after = event["sequence"]
                    self._settle(sent, event)

    def _body(self, sent: _Submission) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        sent.jobs = sent.jobs or [_plain_job(pending) for pending in sent.left.values()]
        return {
            "jobs": sent.jobs,  # the same whenever the key is the same
            "priority": self._config.priority,
            "deadline_s": max(min(pending.deadline for pending in sent.left.values()) - now, 0.001),
            "keep_s": KEPT_S,
        }

    def _settle(self, sent: _Submission, event: dict[str, Any]) -> None:
        pending = sent.left.get(event["place"])
        if pending is None:
            return
        link = sent.link
        if event["verdict"] is None:  # cancelled: by this client, or after it was disconnected too long
            self._failed_once(sent, "it cancelled the job", [pending])
        else:
            try:
                verdict = from_plain(Verdict, event["verdict"], link.url)
            except DataError as error:
                raise Unavailable(f"no verdict: {error}") from None
            now, fault = asyncio.get_running_loop().time(), verdict.fault
            if fault is not None and fault.kind not in _FINAL_FAULTS:
                link.note_fault(now)
                self._failed_once(sent, fault.detail, [pending], fault.kind)
            else:
                link.faults_in_a_row = 0
                # A request has the deadline of its oldest program; one with time left is queued again.
                if fault is None or fault.kind != "deadline" or pending.deadline - now <= _EARLY_S:
                    self._resolve(pending, _named(verdict, link))
        if not pending.future.done():
            self._pending.append(pending)
        sent.left.pop(event["place"], None)
        sent.count()
        self._changed.set()

    def _failed_once(
        self, sent: _Submission, reason: str, which: Iterable[Pending] | None = None, kind: str = "server"
    ) -> None:
        """Count a failure; after the last try its reason becomes the fault of the verdict."""
        for pending in list(sent.left.values()) if which is None else which:
            pending.failures += 1
            pending.reason = f"{sent.link.url}: {reason} (request {sent.key})"
            if pending.failures > self._config.retries:
                self._fail([pending], kind, "")
        self._drop_settled(sent)

    def _drop_settled(self, sent: _Submission) -> None:
        sent.left = {place: pending for place, pending in sent.left.items() if not pending.future.done()}
        if not sent.jobs:  # no request was sent, so indices may change
            sent.left = dict(enumerate(sent.left.values()))
        sent.count()

    def _refused(self, sent: _Submission, error: Exception) -> None:
        """One job of the batch is refused, and the server does not report which: send each job alone."""
        if len(sent.left) > 1:
            for pending in sent.left.values():
                self._spawn_submission(sent.link, [pending])
            sent.left = {}
            return
        for pending in sent.left.values():
            if isinstance(error, Rejected) and error.kind != "input":
                pending.reason = f"{sent.link.url}: {error}"
                self._fail([pending], "server", "")
            elif not pending.future.done() and pending.future.set_running_or_notify_cancel():
                pending.future.set_exception(InputError(str(error)) if isinstance(error, Rejected) else error)

    def _fail(self, which: Iterable[Pending], kind: str, reason: str) -> None:
        for pending in which:
            detail = "; ".join(part for part in (reason, pending.reason) if part)
            if pending.remote is not None and pending.remote[0].url not in detail:
                detail = f"{pending.remote[0].url}: {detail}"
            self._resolve(pending, Verdict.none(Fault(kind, detail)))

    def _resolve(self, pending: Pending, verdict: Verdict) -> None:
        job, future = pending.job, pending.future
        if not future.done() and future.set_running_or_notify_cancel():
            self.num_judged += 1
            future.set_result(replace(verdict, problem_id=job.problem.id, id=job.id))


def _plain_job(pending: Pending) -> dict[str, Any]:
    job = pending.job
    return {
        "problem": pending.need.digest,
        "source": job.program.source,
        "language": job.program.language,
        "tests": job.tests,
        "stop_at_failure": job.stop_at_failure,
    }


def _named(verdict: Verdict, link: ServerLink) -> Verdict:
    """Return the verdict; a fault names the server."""
    fault = verdict.fault
    return verdict if fault is None else replace(verdict, fault=Fault(fault.kind, f"{link.url}: {fault.detail}"))
