"""`RemoteJudge`: a judge on servers (`autoclave serve`).

One thread with an event loop makes all requests. A problem is uploaded once to each server that does not have it,
programs are sent in batches (`balancer.py`), and verdicts come back as streams.
"""

import asyncio
import logging
import os
import ssl
import weakref
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoclave.config import LEVELS, Level, RemoteJudgeConfig
from autoclave.core import Closing, ConfigError, DataError, HostError, InputError, JudgeFault, Problem, Trace, Verdict
from autoclave.core.files import existing_file
from autoclave.core.json import from_plain
from autoclave.judge import JudgeJob
from autoclave.judge.evaluation import chosen_tests
from autoclave.service.balancer import Balancer, Pending
from autoclave.service.loop_thread import LoopThread
from autoclave.service.server_link import Need, Rejected, ServerLink, Unavailable, UnknownProblem, pause_s

_log = logging.getLogger(__name__)


class RemoteJudge(Closing):
    """A `Judge` on other machines. Safe to use from several threads."""

    def __init__(self, config: RemoteJudgeConfig, *, minimum_level: Level = "sealed") -> None:
        """Find the servers.

        Raises:
            HostError: no server responds for `patience_s`.
            ConfigError: no server is configured, one does not accept the token, or the configured token is missing.
            IsolationError: the isolation level of a server is below the minimum.
        """
        if not config.urls:
            raise ConfigError(
                "judge.remote.urls: is empty. Fix: name the servers, such as judge.remote.urls=[http://host:8750]"
            )
        token, context = token_of(config), context_of(config)
        self._config = config
        self._links = [ServerLink(url, config, token, context, minimum_level) for url in config.urls]
        self._balancer = Balancer(self._links, config)
        self._digests = _Digests()
        self._accepted: set[tuple[str, str]] = set()
        self._traceable: set[tuple[str, str, int]] = set()
        self._run: asyncio.Task[None] | None = None
        self._thread = LoopThread("remote-judge", "the judge is closed")
        try:
            self._thread.wait(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def level(self) -> Level:
        """Lowest isolation level of the servers that have responded."""
        found = {link.info.level for link in self._links if link.info}
        levels: list[Level] = [level for level in LEVELS if level in found]
        return levels[0] if levels else "open"

    def check(self, problem: Problem) -> None:
        """Check a problem on one server, as `Judge.check`, and upload it; raises `JudgeFault` if none responds."""
        self._thread.require_open()
        self._check(Need(self._digests.of(problem), problem), self._config.patience_s)

    def _check(self, need: Need, patience_s: float) -> None:
        if need.key not in self._accepted:
            self._thread.wait(self._call_any(lambda link: link.ensure([need]), patience_s))
            self._accepted.add(need.key)

    def submit(self, job: JudgeJob) -> Future[Verdict]:
        self._thread.require_open()
        need = self._need_of(job)
        with suppress(JudgeFault):  # then it waits for a server in the queue
            self._check(need, 0.0)
        future: Future[Verdict] = Future()
        pending = Pending(job, need, future, self._thread.time() + self._config.deadline_s)
        self._thread.soon(lambda: self._queue(pending))
        return future

    def state(self) -> str:
        waiting = f"{self._balancer.num_pending} programs pending, {self._balancer.num_judged} judged"
        down = [link.url for link in self._links if link.failures or link.is_excluded]
        return waiting + (f"; no response from {', '.join(down)}" if down else "")

    def trace(self, job: JudgeJob, index: int) -> Future[Trace]:
        self._thread.require_open()
        need = self._need_of(job)
        key = (*need.key, index)
        try:
            if key not in self._traceable:
                self._thread.wait(self._request_trace(job, need, index, check_only=True))
                self._traceable.add(key)
        except JudgeFault as error:
            future: Future[Trace] = Future()
            future.set_exception(error)
            return future
        return self._thread.start(self._trace(job, need, index))

    def close(self) -> None:
        self._thread.close(self._close_links, first=self._stop)

    def _need_of(self, job: JudgeJob) -> Need:
        """Return the problem of a job with its digest."""
        if job.program.language != job.problem.language:
            raise InputError(
                f"problem {job.problem.id!r}: program.language = {job.program.language!r}: "
                f"must be {job.problem.language!r}, the language of the problem"
            )
        chosen_tests(job, (0,))
        return Need(self._digests.of(job.problem), job.problem)

    # --- In the loop of the thread ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        start, attempt = loop.time(), 0
        while True:
            found = await asyncio.gather(*(link.refresh() for link in self._links), return_exceptions=True)
            if wrong := next((one for one in found if isinstance(one, InputError | HostError)), None):
                raise wrong
            if any(link.info for link in self._links):
                break
            reasons = ", ".join(f"{link.url} ({error})" for link, error in zip(self._links, found, strict=True))
            if loop.time() - start >= self._config.patience_s:
                raise HostError(f"no judge server responds: {reasons}. Fix: start one with `autoclave serve`")
            if not attempt:
                _log.warning("waiting up to %g s for a judge server: %s", self._config.patience_s, reasons)
            await asyncio.sleep(min(pause_s(attempt), self._config.patience_s))
            attempt += 1
        for link in self._links:
            if link.info is None:
                link.note_failure(loop.time())
        self._run = asyncio.ensure_future(self._balancer.run())

    def _queue(self, pending: Pending) -> None:
        """Queue a job; when its future is cancelled, so is the job."""
        loop = asyncio.get_running_loop()

        def note(future: Future[Verdict]) -> None:
            if future.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(self._balancer.cancel, pending)

        pending.future.add_done_callback(note)
        self._balancer.add(pending)

    async def _trace(self, job: JudgeJob, need: Need, index: int) -> Trace:
        plain = await self._request_trace(job, need, index, check_only=False)
        try:
            found = from_plain(Trace, plain, "trace")
        except DataError as error:
            raise JudgeFault(f"no trace: {error}") from None
        return replace(found, problem_id=job.problem.id, id=job.id)

    async def _request_trace(self, job: JudgeJob, need: Need, index: int, *, check_only: bool) -> Any:
        body = {
            "problem": need.digest,
            "source": job.program.source,
            "language": job.program.language,
            "test": index,
            "check_only": check_only,
        }
        if index < 0:
            raise InputError(f"problem {job.problem.id!r}: test {index}: no such test")

        async def call(link: ServerLink) -> Any:
            await link.ensure([need])
            return await link.trace(body)

        return await self._call_any(call, self._config.patience_s)

    async def _call_any(self, call: Any, patience_s: float) -> Any:
        """Call the least busy server; after a failure, another one, for `patience_s`.

        Raises:
            InputError: a server refuses the input.
            HostError: something is missing on a server's machine.
            JudgeFault: no server responds.
        """
        loop, reason = asyncio.get_running_loop(), "none is usable any more"
        end, lost, tried = loop.time() + patience_s, 0, set[str]()
        while links := [link for link in self._links if not link.is_excluded]:
            if loop.time() > end and tried.issuperset(link.url for link in links):
                break
            link = min(links, key=lambda link: (link.available_at > loop.time(), link.failures, -link.num_free))
            tried.add(link.url)
            if link.available_at > loop.time():
                if link.available_at > end:
                    break
                await asyncio.sleep(link.available_at - loop.time())
            try:
                done = await call(link)
                self._balancer.note_work()
                return done
            except Unavailable as error:
                reason = f"{link.url}: {error}"
                link.note_unavailable(loop.time(), error)
                if not error.is_busy:
                    self._balancer.note_silence(link, str(error))
            except UnknownProblem:
                link.known.clear()
                reason, lost = f"{link.url}: it lost a problem", lost + 1
                if lost > self._config.retries:
                    break
            except Rejected as error:
                if error.kind in ("input", "host"):
                    raise (InputError if error.kind == "input" else HostError)(str(error)) from None
                raise JudgeFault(f"{link.url}: {error}") from None
        raise JudgeFault(f"no judge server responds: {reason}")

    async def _stop(self) -> None:
        """Cancel all jobs, here and at the servers."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        await self._balancer.close()

    async def _close_links(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))


class _Digests:
    """Digests of problems, computed once per live object. Safe to use from several threads."""

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
    """Return the token for the servers; empty if none is configured. Raises `ConfigError` or `InputError`."""
    if config.token_variable:
        token = os.environ.get(config.token_variable, "").strip()
        if not token:
            raise ConfigError(
                f"judge.remote.token_variable = {config.token_variable}: is not set. Fix: set it to the token"
            )
    elif config.token_file:
        token = existing_file(Path(config.token_file), "judge.remote.token_file").read_text(errors="replace").strip()
    else:
        return ""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            "judge.remote: the value found is not a token. Fix: use one that `autoclave serve token create` prints"
        )
    return token


def context_of(config: RemoteJudgeConfig) -> ssl.SSLContext | bool:
    """Return the TLS context that checks certificates of servers. Raises `ConfigError` or `InputError`."""
    if not config.certificate_file:
        return True
    path = existing_file(Path(config.certificate_file), "judge.remote.certificate_file")
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise ConfigError(f"judge.remote.certificate_file {path}: is not a certificate in PEM") from None
