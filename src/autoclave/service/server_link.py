"""One server as a client sees it: its calls, what it knows, and how it has been doing. Nothing here decides."""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx
import zstandard

from autoclave.config import LEVELS, Level, RemoteJudgeConfig
from autoclave.core import ConfigError, HostError, InputError, IsolationError, Problem
from autoclave.core.problem import StoredTests
from autoclave.service.wire import LookupAnswer, ServerAnswer

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 30.0
FAULTS_OF_A_BROKEN_SERVER = 3
_BUSY = frozenset({429, 503})
_CONNECT_S = 5.0
_WORTH_PACKING = 4096


class Unavailable(Exception):
    """The server does not answer, breaks off, or fails. Another try may succeed, after `wait_s` if it says so."""

    def __init__(self, reason: str, wait_s: float | None = None, *, is_busy: bool = False) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        self.is_busy = is_busy


class Distrusted(Unavailable):
    """The server cannot prove that it is the one asked for."""


class UnknownProblem(Exception):
    """The server does not have a problem that it had."""


class Rejected(Exception):
    """The server will not do this, however often it is asked."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Need:
    """A problem under its digest; many jobs share one."""

    digest: str
    problem: Problem

    @property
    def way(self) -> tuple[str, str]:
        """What a server has to agree to once."""
        return self.digest, self.problem.language


class ServerLink:
    """For the tasks of one event loop."""

    def __init__(
        self,
        url: str,
        config: RemoteJudgeConfig,
        token: str,
        context: ssl.SSLContext | bool,
        minimum_level: Level = "open",
    ) -> None:
        self._minimum_level = minimum_level
        self.url = url.rstrip("/")
        self.about: ServerAnswer | None = None
        self.num_in_flight = 0
        self.num_of_others = 0
        """Programs that were not ours when it was looked at last."""
        self.failures = 0
        self.faults_in_a_row = 0
        self.available_at = 0.0
        self.is_barred = False
        self.is_looked_at = False
        self.known: set[tuple[str, str]] = set()
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(config.timeout_s, connect=min(_CONNECT_S, config.timeout_s), pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            verify=context,
            trust_env=False,  # the address is what settings say
        )

    # --- How it has been doing -------------------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Programs of ours that it may have at a time, so that it is never idle; fewer while others keep it busy, and
        one while its answers are faults.
        """
        if self.faults_in_a_row >= FAULTS_OF_A_BROKEN_SERVER:
            return 1
        slots = self.about.all_slots if self.about else 1
        return max(max(16 * slots, 32) - self.num_of_others, slots)

    @property
    def num_free(self) -> int:
        """Programs that it can be given now: none while it does not answer."""
        return 0 if self.is_barred or self.failures else max(self.window - self.num_in_flight, 0)

    @property
    def batch_limit(self) -> int:
        """Most programs in one request."""
        return self.about.batch_limit if self.about else 2**31

    def note_success(self) -> None:
        """It answered."""
        if self.failures:
            self.failures, self.available_at = 0, 0.0

    def note_verdict(self) -> None:
        """Its judge works."""
        self.faults_in_a_row = 0

    def note_fault(self, now: float) -> None:
        """Its judge failed. One whose sandbox is broken answers fast, and would get all the work."""
        self.faults_in_a_row += 1
        if self.faults_in_a_row >= FAULTS_OF_A_BROKEN_SERVER:
            self.available_at = now + pause_s(self.faults_in_a_row - FAULTS_OF_A_BROKEN_SERVER)

    def note_failure(self, now: float, wait_s: float | None = None) -> bool:
        """It did not. The longer that goes on, the longer it is left alone; clients do not come back all at once.

        False if it is being left alone already: requests that fail together are one failure.
        """
        if self.failures and now < self.available_at:
            return False
        self.failures += 1
        self.available_at = now + (pause_s(self.failures - 1) if wait_s is None else wait_s * random.uniform(1.0, 1.25))
        return True

    def pause(self, now: float, wait_s: float) -> None:
        """It has no room, and said for how long."""
        self.available_at = now + wait_s * random.uniform(1.0, 1.25)

    # --- Calls -----------------------------------------------------------------------------------------------------

    async def look(self) -> ServerAnswer:
        """What the server is, and how much it has to do.

        Raises:
            Unavailable: it does not say.
            ConfigError: it does not take the token, its certificate is not trusted, or it is no such server.
            IsolationError: programs are less isolated there than is accepted here.
        """
        try:
            self.about = ServerAnswer.model_validate(await self._call("GET", "/v1/server"))
        except Distrusted as error:
            raise ConfigError(
                f"judge server {self.url}: its certificate is not trusted ({error}). Fix: set "
                "judge.remote.certificate_file to the certificate of whoever signed it, or give the name that it is for"
            ) from None
        except Rejected as error:
            if error.kind in ("unauthorized", "forbidden"):
                fix = "set judge.remote.token_variable or token_file, with a token of `autoclave serve token create`"
                raise ConfigError(f"judge server {self.url}: {error}. Fix: {fix}") from None
            raise ConfigError(f"judge.remote.urls: {self.url} is no server of autoclave serve ({error})") from None
        except ValueError:
            raise ConfigError(f"judge.remote.urls: {self.url} is no server of autoclave serve") from None
        self.num_of_others = max(self.about.waiting + self.about.running - self.num_in_flight, 0)
        level = self.about.level
        if level not in LEVELS or LEVELS.index(level) < LEVELS.index(self._minimum_level):
            raise IsolationError(
                f'judge server {self.url}: its level is "{level}"; sandbox.minimum_level = "{self._minimum_level}". '
                f"Fix: start it where sealed cells can be made, or accept less: sandbox.minimum_level={level}"
            )
        return self.about

    async def ensure(self, needs: Sequence[Need]) -> None:
        """Have the server know problems; those that it does not have are uploaded.

        Raises:
            InputError: one cannot be judged there.
            HostError: the server's machine lacks what one needs.
            Unavailable: it does not answer.
            Rejected: it refuses them.
        """
        new = list({need.way: need for need in needs if need.way not in self.known}.values())
        if not new:
            return
        answer = await self._looked_up(new)
        if answer.unknown:
            unknown = set(answer.unknown)
            await self._upload(list({need.digest: need for need in new if need.digest in unknown}.values()))
            answer = await self._looked_up(new)  # those of another language than the one that was uploaded
        for refused in answer.refused:
            raise HostError(f"{self.url}: {refused.message}") if refused.kind == "host" else InputError(refused.message)
        self.known.update(need.way for need in new)

    async def _looked_up(self, needs: Sequence[Need]) -> LookupAnswer:
        body = {"problems": [{"digest": need.digest, "language": need.problem.language} for need in needs]}
        return LookupAnswer.model_validate(await self._call("POST", "/v1/problems/lookup", body))

    async def _upload(self, needs: Sequence[Need]) -> None:
        lines: list[str] = []
        for need in needs:
            if isinstance(need.problem.tests, StoredTests):
                raise InputError(f"problem {need.problem.id!r}: tests.digest = {need.digest}: not stored at {self.url}")
            lines.append(json.dumps(replace(need.problem, solutions=[]).to_json()))
        try:
            await self._call("POST", "/v1/problems", "\n".join(lines).encode(), form="application/x-ndjson")
        except Rejected as error:
            if error.kind == "host":
                raise HostError(f"{self.url}: {error}") from None
            if error.kind == "input":
                raise InputError(str(error)) from None
            raise

    async def judge(self, body: Mapping[str, Any], key: str) -> AsyncGenerator[dict[str, Any]]:
        """Submit a batch, and what happens to it.

        Raises:
            Unavailable: the server does not answer, or the stream ended early.
            UnknownProblem: it does not have one of the problems any more.
            Rejected: it refuses the batch.
        """
        async with aclosing(self._events("POST", "/v1/batches", body, {"Idempotency-Key": key})) as events:
            async for event in events:
                yield event

    async def watch(self, batch: str, after: int) -> AsyncGenerator[dict[str, Any]]:
        """What happens to a batch behind `after`. Raises as `judge` does."""
        path = f"/v1/batches/{batch}/stream?after={after}"
        async with aclosing(self._events("GET", path, None, {})) as events:
            async for event in events:
                yield event

    async def trace(self, body: Mapping[str, Any]) -> Any:
        """The trace as JSON. Raises as `judge` does."""
        return (await self._call("POST", "/v1/traces", body))["trace"]

    async def cancel(self, path: str) -> None:
        """Cancel a job or a batch, if that can be done."""
        with suppress(Unavailable, Rejected, UnknownProblem):  # it ends by itself
            await self._call("DELETE", path)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _call(self, method: str, path: str, body: Any = None, *, form: str = "application/json") -> Any:
        try:
            reply = await self._http.request(method, path, **_content(body, form))
            await self._require_success(reply)
            return reply.json() if reply.content else None
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise _unavailable(error) from error

    async def _events(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> AsyncGenerator[dict[str, Any]]:
        content = _content(body, "application/json")
        content["headers"] |= {"Accept": "application/x-ndjson", **headers}
        try:
            async with self._http.stream(method, path, **content) as reply:
                await self._require_success(reply)
                async for line in reply.aiter_lines():
                    if not line.strip():
                        continue
                    event = json.loads(line)
                    if event["event"] == "end":
                        return
                    yield event
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise _unavailable(error) from error
        raise Unavailable("the stream broke off")

    async def _require_success(self, reply: httpx.Response) -> None:
        if reply.status_code < 300:
            return
        await reply.aread()
        try:
            error = reply.json()["error"]
            kind, message = str(error["kind"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            kind, message = "http", f"status {reply.status_code}"
            if reply.status_code == 404 and self.about:  # a proxy whose server is away for a while
                raise Unavailable(message) from None
        if (reply.status_code >= 500 and kind != "host") or reply.status_code in _BUSY or reply.status_code == 408:
            wait_s = _retry_after(reply)
            is_busy = reply.status_code in _BUSY and wait_s is not None
            raise Unavailable(f"status {reply.status_code}: {message}", wait_s, is_busy=is_busy)
        if kind == "unknown_problem":
            raise UnknownProblem
        raise Rejected(kind, message)


def pause_s(attempt: int) -> float:
    """How long to wait after so many failures, and one more."""
    return min(FIRST_WAIT_S * 2 ** min(attempt, 10), LONGEST_WAIT_S) * random.uniform(0.75, 1.25)


def _content(body: Any, form: str) -> dict[str, Any]:
    """The arguments of a request; ASCII, because programs may hold text that has no UTF-8."""
    if body is None:
        return {"headers": {}}
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode("ascii")
    headers = {"Content-Type": form}
    if len(data) > _WORTH_PACKING:
        data = zstandard.ZstdCompressor(level=1).compress(data)
        headers["Content-Encoding"] = "zstd"
    return {"content": data, "headers": headers}


def _retry_after(reply: httpx.Response) -> float | None:
    text = reply.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def _unavailable(error: BaseException) -> Unavailable:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Distrusted(cause.verify_message)
        cause = cause.__cause__ or cause.__context__
    return Unavailable(_reason(error))


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:300]
