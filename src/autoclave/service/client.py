"""`RemoteJudge`: a judge whose programs are judged by servers (`autoclave serve`), and its asynchronous twin.

All requests are made by one thread with an event loop; problems are uploaded once to each server that does not have
them, programs go out many at a time (`balancer.py`), and verdicts come back as streams.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import weakref
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from autoclave.config import LEVELS, Level, RemoteJudgeConfig
from autoclave.core import (
    Closing,
    ConfigError,
    DataError,
    Fault,
    HostError,
    InputError,
    JudgeFault,
    Problem,
    Trace,
    Verdict,
)
from autoclave.core.files import existing_file
from autoclave.core.json import from_plain
from autoclave.judge import JudgeJob
from autoclave.service.balancer import Balancer, Pending
from autoclave.service.loop_thread import LoopThread
from autoclave.service.server_link import Need, Rejected, ServerLink, Unavailable, UnknownProblem, pause_s

T = TypeVar("T")
_CHOICE = re.compile(r"all|longest:([1-9][0-9]{0,8})")


class AsyncRemoteJudge:
    """Servers that judge, for the tasks of one event loop. Open it with `async with`."""

    def __init__(self, config: RemoteJudgeConfig, *, minimum_level: Level = "sealed") -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: there is no server, or no token where settings say that it is.
        """
        if not config.urls:
            raise ConfigError("judge.remote.urls: name the servers, such as judge.remote.urls=[http://host:8750]")
        token, context = token_of(config), context_of(config)
        self._config = config
        self._links = [ServerLink(url, config, token, context, minimum_level) for url in config.urls]
        self._balancer = Balancer(self._links, config)
        self._digests = _Digests()
        self._accepted: set[tuple[str, str]] = set()
        self._traceable: set[tuple[str, str, int]] = set()
        self._run: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find at least one server.

        Raises:
            HostError: none answers, also after `retries`.
            ConfigError: one does not take the token.
            IsolationError: one isolates less than is accepted.
        """
        reasons: list[str] = []
        for attempt in range(self._config.retries + 1):
            found = await asyncio.gather(*(link.look() for link in self._links), return_exceptions=True)
            if wrong := next((one for one in found if isinstance(one, InputError | HostError)), None):
                raise wrong
            if any(link.about for link in self._links):
                for link in self._links:
                    if link.about is None:
                        link.note_failure(asyncio.get_running_loop().time())
                break
            reasons = [f"{link.url} ({error})" for link, error in zip(self._links, found, strict=True)]
            if attempt < self._config.retries:
                await asyncio.sleep(pause_s(attempt))
        else:
            raise HostError(f"no judge server answers: {', '.join(reasons)}. Fix: start one with `autoclave serve`")
        self._run = asyncio.ensure_future(self._balancer.run())

    @property
    def level(self) -> Level:
        """The least isolation of the servers that have answered."""
        found = {link.about.level for link in self._links if link.about}
        levels: list[Level] = [level for level in LEVELS if level in found]
        return levels[0] if levels else "open"

    def need_of(self, job: JudgeJob) -> Need:
        """The problem of a job under its digest.

        Raises:
            InputError: the program cannot be one for it, or the choice of tests is none.
        """
        problem = job.problem
        if job.program.language != problem.language:
            raise InputError(
                f"problem {problem.id!r}: program.language = {job.program.language!r}: "
                f"must be {problem.language!r}, as the problem says"
            )
        if not _CHOICE.fullmatch(job.tests):
            raise InputError(f"problem {problem.id!r}: tests = {job.tests!r}: must be all or longest:N")
        return Need(self._digests.of(problem), problem)

    def is_accepted(self, need: Need) -> bool:
        """Whether a server has agreed to the problem before."""
        return need.way in self._accepted

    async def check(self, problem: Problem) -> None:
        """As `Judge.check`, on one server; the problem is uploaded where it is not known.

        Raises:
            InputError: it cannot be judged there.
            HostError: the server's machine lacks something.
            JudgeFault: no server answers.
        """
        need = Need(self._digests.of(problem), problem)
        if not self.is_accepted(need):
            await self._anywhere(lambda link: link.ensure([need]))
            self._accepted.add(need.way)

    def add(self, job: JudgeJob, need: Need) -> Future[Verdict]:
        """Queue a job whose problem was checked."""
        future: Future[Verdict] = Future()
        self.queue(Pending(job, need, future, asyncio.get_running_loop().time() + self._config.deadline_s))
        return future

    def queue(self, pending: Pending) -> None:
        """Queue a job; when its future is cancelled, so is the job."""
        loop = asyncio.get_running_loop()

        def note(future: Future[Verdict]) -> None:
            if future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(self._balancer.give_up, pending)

        pending.future.add_done_callback(note)
        self._balancer.add(pending)

    async def judge(self, job: JudgeJob) -> Verdict:
        """The verdict of a job; after repeated faults, one with `fault` set.

        Raises:
            InputError: the problem cannot be judged.
            HostError: the server's machine lacks something.
        """
        need = self.need_of(job)
        try:
            await self.check(job.problem)
        except JudgeFault as error:
            return no_verdict(job, error)
        return await asyncio.wrap_future(self.add(job, need))

    async def require_trace(self, job: JudgeJob, index: int) -> None:
        """Check that a program can be traced on a test.

        Raises:
            InputError: it cannot.
            JudgeFault: no server answers.
        """
        need = self.need_of(job)
        way = (*need.way, index)
        if way not in self._traceable:
            await self._traced(job, need, index, is_rehearsal=True)
            self._traceable.add(way)

    async def trace(self, job: JudgeJob, index: int) -> Trace:
        """As `Judge.trace`.

        Raises:
            InputError: it cannot be traced.
            JudgeFault: no server could.
        """
        plain = await self._traced(job, self.need_of(job), index, is_rehearsal=False)
        try:
            found = from_plain(Trace, plain, "trace")
        except DataError as error:
            raise JudgeFault(f"no trace: {error}") from None
        return replace(found, problem_id=job.problem.id, id=job.id)

    async def _traced(self, job: JudgeJob, need: Need, index: int, *, is_rehearsal: bool) -> Any:
        body = {
            "problem": need.digest,
            "source": job.program.source,
            "language": job.program.language,
            "test": index,
            "is_rehearsal": is_rehearsal,
        }
        if index < 0:
            raise InputError(f"problem {job.problem.id!r}: test {index}: no such test")

        async def ask(link: ServerLink) -> Any:
            await link.ensure([need])
            return await link.trace(body)

        return await self._anywhere(ask)

    async def _anywhere(self, ask: Any) -> Any:
        """What one server answers, the least busy first; others, and later tries, after a failure.

        Raises:
            InputError: a server refuses what was given.
            HostError: a server's machine lacks something.
            JudgeFault: none answers.
        """
        loop, reason = asyncio.get_running_loop(), ""
        for attempt in range(self._config.retries + 1):
            links = [link for link in self._links if not link.is_barred]
            if not links:
                break
            link = min(links, key=lambda link: (link.available_at > loop.time(), link.failures, -link.num_free))
            try:
                return await ask(link)
            except Unavailable as error:
                reason = f"{link.url}: {error}"
                if error.is_busy:
                    link.pause(loop.time(), error.wait_s or 1.0)
                else:
                    link.note_failure(loop.time(), error.wait_s)
            except UnknownProblem:
                link.known.clear()
                reason = f"{link.url}: it forgets problems"
            except Rejected as error:
                if error.kind in ("input", "host"):
                    raise (InputError if error.kind == "input" else HostError)(str(error)) from None
                raise JudgeFault(f"{link.url}: {error}") from None
            if attempt < self._config.retries and all(other.available_at > loop.time() for other in links):
                await asyncio.sleep(min(other.available_at for other in links) - loop.time())
        raise JudgeFault(f"no judge server answers: {reason}")

    def state(self) -> str:
        """How much waits for it and how much it has judged, in words."""
        waiting = f"{self._balancer.num_pending} programs wait or are judged, {self._balancer.num_judged} were judged"
        down = [link.url for link in self._links if link.failures or link.is_barred]
        return waiting + (f"; no answer from {', '.join(down)}" if down else "")

    async def stop(self) -> None:
        """Cancel what is queued, here and at the servers."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        await self._balancer.close()

    async def close(self) -> None:
        """`stop`, and close all connections."""
        await self.stop()
        await asyncio.gather(*(link.close() for link in self._links))

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class RemoteJudge(Closing):
    """A `Judge` on other machines. Safe to use from several threads."""

    def __init__(self, config: RemoteJudgeConfig, *, minimum_level: Level = "sealed") -> None:
        """Find the servers.

        Raises:
            HostError: none answers.
            ConfigError: one does not take the token, or there is none where settings say that it is.
            IsolationError: one isolates less than is accepted.
        """
        self._config = config
        self._inner = AsyncRemoteJudge(config, minimum_level=minimum_level)
        self._thread = LoopThread("remote-judge", "the judge is closed")
        try:
            self._thread.wait(self._inner.open())
        except BaseException:
            self.close()
            raise

    @property
    def level(self) -> Level:
        return self._inner.level

    def check(self, problem: Problem) -> None:
        """As `Judge.check`. With no server that answers, `JudgeFault` is raised."""
        self._thread.require_open()
        self._thread.wait(self._inner.check(problem))

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self._thread.require_open()
        need = self._inner.need_of(job)
        future: Future[Verdict] = Future()
        if not self._inner.is_accepted(need):
            try:
                self._thread.wait(self._inner.check(job.problem))
            except JudgeFault as error:
                future.set_result(no_verdict(job, error))
                return future
        pending = Pending(job, need, future, self._thread.time() + self._config.deadline_s)
        self._thread.soon(lambda: self._inner.queue(pending))
        return future

    def state(self) -> str:
        return self._inner.state()

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        self._thread.require_open()
        try:
            self._thread.wait(self._inner.require_trace(job, index))
        except JudgeFault as error:
            future: Future[Trace] = Future()
            future.set_exception(error)
            return future
        return self._thread.start(self._inner.trace(job, index))

    def close(self) -> None:
        self._thread.close(self._inner.close, first=self._inner.stop)


def no_verdict(job: JudgeJob, error: JudgeFault) -> Verdict:
    """The verdict where no server answers."""
    return Verdict.none(Fault("server", str(error)), problem_id=job.problem.id, id=job.id)


class _Digests:
    """Digests of problems, worked out once for each that somebody holds. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Problem], str]] = {}

    def of(self, problem: Problem) -> str:
        number = id(problem)
        known = self._known.get(number)
        if known is None or known[0]() is not problem:
            known = (weakref.ref(problem, lambda _: self._known.pop(number, None) and None), problem.digest)
            self._known[number] = known
        return known[1]


def token_of(config: RemoteJudgeConfig) -> str:
    """The token for the servers; empty where settings name none.

    Raises:
        ConfigError: it is not where they say.
        InputError: the file cannot be read.
    """
    if config.token_variable:
        token = os.environ.get(config.token_variable, "").strip()
        if not token:
            raise ConfigError(f"judge.remote.token_variable = {config.token_variable}: is not set; put the token there")
    elif config.token_file:
        token = existing_file(Path(config.token_file), "judge.remote.token_file").read_text(errors="replace").strip()
    else:
        return ""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("judge.remote: what was found is no token; `autoclave serve token create` prints one")
    return token


def context_of(config: RemoteJudgeConfig) -> ssl.SSLContext | bool:
    """What certificates of servers are checked against.

    Raises:
        ConfigError: the file holds none.
        InputError: it is missing.
    """
    if not config.certificate_file:
        return True
    path = existing_file(Path(config.certificate_file), "judge.remote.certificate_file")
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise ConfigError(f"judge.remote.certificate_file {path}: is no certificate in PEM") from None
