"""Programs that wait, given to servers where slots are free; what a server does not do is given to another.

A batch that a server accepted is followed there as long as no other server could take it over: it survives the death
of the server's process. The same idempotency key is sent again where it is not known whether a batch was accepted.
Whoever waits for a verdict gets one, once: from the first server that has it, or, after `retries` failures or when the
deadline is over, one that says that there is none and which server is to blame.
"""

from __future__ import annotations

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
"""How long a server goes on judging for a client that is gone."""
_REQUEST_BYTES = 8 << 20
_TICK_S = 1.0
_GOODBYE_S = 2.0
_LOOK_EVERY_S = 5.0
_EARLY_S = 1.0
_FINAL_FAULTS = ("problem", "host", "deadline")
"""Another try, or another server, would say the same."""
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Pending:
    """A job without a verdict. Times are those of the loop."""

    job: JudgeJob
    need: Need
    future: Future[Verdict]
    deadline: float
    failures: int = 0
    reason: str = ""
    remote: tuple[ServerLink, str] | None = None


@dataclass(slots=True)
class _Asked:
    """A batch at a server: those of its jobs that have no verdict, by place."""

    link: ServerLink
    left: dict[int, Pending]
    num_held: int = 0
    """How many of the programs in flight there are of this batch, as counted."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    jobs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    batch: str = ""
    after: int = 0

    def count(self) -> None:
        """What is left is in flight there, no more and no less."""
        self.link.num_in_flight += len(self.left) - self.num_held
        self.num_held = len(self.left)

    def start_over(self) -> None:
        """What is left becomes a batch of its own."""
        self.left = dict(enumerate(self.left.values()))
        self.key, self.jobs, self.batch, self.after = secrets.token_urlsafe(18), [], "", 0


class Balancer:
    """For the tasks of one event loop; futures may be waited for anywhere."""

    def __init__(self, links: Sequence[ServerLink], config: RemoteJudgeConfig) -> None:
        self._links = links
        self._config = config
        self._pending: deque[Pending] = deque()
        self._unsettled: deque[Pending] = deque()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: list[_Asked] = []
        self._looked_at = 0.0
        self._is_closed = False
        self.num_judged = 0

    @property
    def num_pending(self) -> int:
        """Programs that wait here or at servers."""
        return sum(not pending.future.done() for pending in self._unsettled)

    def add(self, pending: Pending) -> None:
        """Have a program judged."""
        self._pending.append(pending)
        self._unsettled.append(pending)
        self._changed.set()

    def give_up(self, pending: Pending) -> None:
        """Whoever waited does so no longer."""
        if pending.remote is not None and not self._is_closed:
            link, job = pending.remote
            self.spawn(link.cancel(f"/v1/jobs/{job}"))

    async def run(self) -> None:
        """Give out programs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience_s()):  # `wait_for` can swallow a cancellation
                    await self._changed.wait()
            self._changed.clear()
            self._expire()
            self._distribute()

    async def close(self) -> None:
        """End all requests, and have servers stop what nobody waits for."""
        if self._is_closed:
            return
        self._is_closed = True
        batches = [(asked.link, asked.batch) for asked in self._asked if asked.batch]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cancels = [link.cancel(f"/v1/batches/{batch}") for link, batch in batches]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.gather(*cancels)
        for pending in self._unsettled:
            pending.future.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- Who gets what ---------------------------------------------------------------------------------------------

    def _patience_s(self) -> float:
        now = asyncio.get_running_loop().time()
        waits = [link.available_at - now for link in self._links if link.available_at > now] if self._pending else []
        return min([_TICK_S, *waits])

    def _expire(self) -> None:
        """Programs were added in the order of their deadlines."""
        now = asyncio.get_running_loop().time()
        while self._unsettled and (self._unsettled[0].future.done() or self._unsettled[0].deadline <= now):
            pending = self._unsettled.popleft()
            if not pending.future.done():
                self._no_verdict(pending, "deadline", f"no verdict within {self._config.deadline_s:g} s")
                self.give_up(pending)

    def _distribute(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._pending and now >= self._looked_at + _LOOK_EVERY_S:
            self._looked_at = now
            for link in self._links:
                if link.num_in_flight and not link.failures:
                    self.spawn(self._look(link))
        for link in self._links:
            if link.failures and not link.is_barred and link.available_at <= now:
                self.spawn(self._look(link))
        if all(link.is_barred for link in self._links):
            self._fail(self._pending, "server", "no server can be used any more")
            self._pending.clear()
        while self._pending:
            able = [link for link in self._links if link.available_at <= now and self._is_worth_a_request(link)]
            total, num_waiting = sum(link.num_free for link in able), len(self._pending)
            if not total:
                return
            for link in sorted(able, key=lambda link: -link.num_free):
                share = min(math.ceil(num_waiting * link.num_free / total), link.num_free)
                if jobs := self._next(min(share, self._config.programs_per_request, link.batch_limit)):
                    self._spawn_asking(link, jobs)

    def _spawn_asking(self, link: ServerLink, jobs: Sequence[Pending]) -> None:
        asked = _Asked(link, dict(enumerate(jobs)))
        asked.count()
        self.spawn(self._ask(asked))

    async def _look(self, link: ServerLink) -> None:
        """Ask how it is; one that did not answer is used again when it does."""
        if link.is_looked_at:
            return
        link.is_looked_at = True
        try:
            await link.look()
            link.note_success()
        except Unavailable as error:
            is_news = link.note_failure(asyncio.get_running_loop().time(), error.wait_s)
            if is_news and all(other.failures or other.is_barred for other in self._links):
                self._count_failure(self._pending, f"{link.url}: {error}", "server")
        except (ConfigError, IsolationError) as error:
            _log.error("%s is not used any more: %s", link.url, error)
            link.is_barred = True
        finally:
            link.is_looked_at = False
            self._changed.set()

    def _is_worth_a_request(self, link: ServerLink) -> bool:
        """Whether it can take all, or half of its window: a request per program would cost too much."""
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

    # --- One batch -------------------------------------------------------------------------------------------------

    async def _ask(self, asked: _Asked) -> None:
        """Have a batch judged; what is left afterwards waits again."""
        link = asked.link
        self._asked.append(asked)
        try:
            while asked.left and not await self._is_done(asked):
                await asyncio.sleep(max(link.available_at - asyncio.get_running_loop().time(), 0))
                self._drop_settled(asked)  # while it was not asked their time may have come
        except Exception as error:  # noqa: BLE001  a bug here must not leave anybody waiting
            _log.exception("asking %s failed", link.url)
            self._fail(asked.left.values(), "client", f"{type(error).__name__}")
        finally:
            self._asked.remove(asked)
            self._pending.extendleft(reversed([left for left in asked.left.values() if not left.future.done()]))
            asked.left = {}
            asked.count()
            self._changed.set()

    async def _is_done(self, asked: _Asked) -> bool:
        """Ask once. False: to be asked again, of the same server."""
        link, now = asked.link, asyncio.get_running_loop().time
        try:
            if link.about is None:
                await link.look()
            await link.ensure([pending.need for pending in asked.left.values()])
            await self._follow(asked)
            return True
        except Unavailable as error:
            return self._is_left_alone(asked, error)
        except UnknownProblem:
            link.known.difference_update({pending.need.way for pending in asked.left.values()})
            self._failed_once(asked, link, "it forgets problems")
            asked.start_over()
            return False
        except (ConfigError, IsolationError) as error:
            _log.error("%s is not used any more: %s", link.url, error)
            link.is_barred = True
            self._failed_once(asked, link, str(error))
            return True
        except (InputError, HostError, Rejected) as error:
            if asked.batch and isinstance(error, Rejected) and error.kind == "not_found":
                link.note_failure(now())  # it lost its store
                self._failed_once(asked, link, "it forgot what it had accepted")
                return True
            self._refused(asked, error)
            return True

    def _is_left_alone(self, asked: _Asked, error: Unavailable) -> bool:
        """After a failure: whether others are to do it."""
        link, now = asked.link, asyncio.get_running_loop().time()
        is_news = False
        if error.is_busy:
            link.pause(now, error.wait_s or 1.0)
        else:
            is_news = link.note_failure(now, error.wait_s)
            self._failed_once(asked, link, str(error))
        others = [other for other in self._links if other is not link and not other.is_barred and not other.failures]
        if not others and is_news:  # those that wait are no better off
            self._count_failure(self._pending, f"{link.url}: {error}", "server")
        return bool(others)

    async def _follow(self, asked: _Asked) -> None:
        link = asked.link
        events: AsyncGenerator[dict[str, Any]]
        events = link.watch(asked.batch, asked.after) if asked.batch else link.judge(self._body(asked), asked.key)
        async with aclosing(events) as stream:
            async for event in stream:
                link.note_success()
                if event["event"] == "batch":
                    asked.batch = event["batch"]
                    for place, pending in asked.left.items():
                        pending.remote = (link, event["jobs"][place])
                        if pending.future.cancelled():
                            self.give_up(pending)
                elif event["event"] == "job":
                    asked.after = event["sequence"]
                    self._settle(asked, event)

    def _body(self, asked: _Asked) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        asked.jobs = asked.jobs or [_plain_job(pending) for pending in asked.left.values()]
        return {
            "jobs": asked.jobs,  # the same whenever the key is the same
            "priority": self._config.priority,
            "deadline_s": max(min(pending.deadline for pending in asked.left.values()) - now, 0.001),
            "keep_s": KEPT_S,
        }

    # --- What came of it -------------------------------------------------------------------------------------------

    def _settle(self, asked: _Asked, event: dict[str, Any]) -> None:
        pending = asked.left.get(event["place"])
        if pending is None:
            return
        link = asked.link
        if event["verdict"] is None:  # cancelled: by us, or we were gone for too long
            self._failed_once(asked, link, "it cancelled the job", [pending])
        else:
            try:
                verdict = from_plain(Verdict, event["verdict"], link.url)
            except DataError as error:
                raise Unavailable(f"no verdict: {error}") from None
            if verdict.fault is not None and verdict.fault.kind not in _FINAL_FAULTS:
                self._note_fault(asked, pending, verdict.fault)
            elif verdict.fault is not None and self._is_early(pending, verdict.fault):
                link.note_verdict()
            else:
                link.note_verdict()
                self._resolve(pending, _named(verdict, link))
        if not pending.future.done():
            self._pending.append(pending)
        asked.left.pop(event["place"], None)
        asked.count()
        self._changed.set()

    def _is_early(self, pending: Pending, fault: Fault) -> bool:
        """A request has the deadline of its oldest program; the others have time left, and go again."""
        left_s = pending.deadline - asyncio.get_running_loop().time()
        return fault.kind == "deadline" and left_s > _EARLY_S

    def _note_fault(self, asked: _Asked, pending: Pending, fault: Fault) -> None:
        link = asked.link
        link.note_fault(asyncio.get_running_loop().time())
        self._failed_once(asked, link, fault.detail, [pending], fault.kind)

    def _failed_once(
        self,
        asked: _Asked,
        link: ServerLink,
        reason: str,
        which: Iterable[Pending] | None = None,
        kind: str = "server",
    ) -> None:
        """Count a failure; the last one that is allowed is what the program is told."""
        self._count_failure(asked.left.values() if which is None else which, f"{link.url}: {reason}", kind)
        self._drop_settled(asked)

    def _drop_settled(self, asked: _Asked) -> None:
        asked.left = {place: pending for place, pending in asked.left.items() if not pending.future.done()}
        if not asked.jobs:  # places are those of the request, and there was none
            asked.left = dict(enumerate(asked.left.values()))
        asked.count()

    def _count_failure(self, which: Iterable[Pending], reason: str, kind: str) -> None:
        for pending in which:
            pending.failures += 1
            pending.reason = reason
            if pending.failures > self._config.retries:
                self._no_verdict(pending, kind, "")

    def _refused(self, asked: _Asked, error: Exception) -> None:
        """One job of a batch cannot be judged, and nobody says which: each is asked for alone."""
        if len(asked.left) == 1:
            for pending in asked.left.values():
                if isinstance(error, Rejected) and error.kind != "input":
                    pending.reason = f"{asked.link.url}: {error}"
                    self._fail([pending], "server", "")
                else:
                    given = error if isinstance(error, InputError | HostError) else InputError(str(error))
                    if not pending.future.done() and pending.future.set_running_or_notify_cancel():
                        pending.future.set_exception(given)
            return
        for pending in asked.left.values():
            self._spawn_asking(asked.link, [pending])
        asked.left = {}

    def _fail(self, which: Iterable[Pending], kind: str, reason: str) -> None:
        for pending in which:
            self._no_verdict(pending, kind, reason)

    def _no_verdict(self, pending: Pending, kind: str, reason: str) -> None:
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
    """The verdict; a fault names the server."""
    fault = verdict.fault
    return verdict if fault is None else replace(verdict, fault=Fault(fault.kind, f"{link.url}: {fault.detail}"))
