"""Client of one server: its calls, its known problems and its recent failures. Decisions are in `balancer.py`."""

import json
import random
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import httpx
import zstandard

from autoclave.config import LEVELS, Level, RemoteJudgeConfig
from autoclave.core import ConfigError, HostError, InputError, IsolationError, Problem
from autoclave.core.problem import StoredTests
from autoclave.service.transport import CancellableTransport
from autoclave.service.wire import LookupAnswer, ServerAnswer

FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 30.0
FAULTS_OF_A_BROKEN_SERVER = 3
_BUSY = 429
_CONNECT_S = 5.0
_LONGEST_BUSY_S = 300.0
_WORTH_PACKING = 4096


class Unavailable(Exception):
    """The server does not respond, disconnects, or fails. Another try may succeed, after `wait_s` if it is set."""

    def __init__(self, reason: str, wait_s: float | None = None, *, is_busy: bool = False) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        self.is_busy = is_busy


class CertificateError(Unavailable):
    """The certificate of the server is not trusted, or is for another name."""


class UnknownProblem(Exception):
    """The server does not have a problem any more."""


class Rejected(Exception):
    """The server refuses the request; another try would not help."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Need:
    """A problem with its digest, shared by many jobs."""

    digest: str
    problem: Problem

    @property
    def key(self) -> tuple[str, str]:
        """Digest and language, which a server checks once."""
        return self.digest, self.problem.language


class ServerLink:
    """Client of one server, for the tasks of one event loop."""

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
        self.info: ServerAnswer | None = None
        self.num_in_flight = 0
        self.num_foreign = 0
        """Programs of other clients at the last refresh."""
        self.failures = 0
        self.faults_in_a_row = 0
        self.available_at = 0.0
        self.is_excluded = False
        self.is_refreshing = False
        self.known: set[tuple[str, str]] = set()
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(config.timeout_s, connect=min(_CONNECT_S, config.timeout_s), pool=None),
            transport=CancellableTransport(
                httpx.AsyncHTTPTransport(
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
                    verify=context,
                    trust_env=False,  # no proxies and credentials from the environment
                )
            ),
            trust_env=False,
        )

    @property
    def window(self) -> int:
        """Number of our programs that it may have at a time: enough that it is never idle, fewer while others use it,
        one while its judge fails.
        """
        if self.faults_in_a_row >= FAULTS_OF_A_BROKEN_SERVER:
            return 1
        slots = self.info.all_slots if self.info else 1
        return max(max(16 * slots, 32) - self.num_foreign, slots)

    @property
    def num_free(self) -> int:
        """Number of programs that can be sent now: 0 while it does not respond."""
        return 0 if self.is_excluded or self.failures else max(self.window - self.num_in_flight, 0)

    @property
    def batch_limit(self) -> int:
        return self.info.batch_limit if self.info else 2**31

    def note_success(self) -> None:
        if self.failures:
            self.failures, self.available_at = 0, 0.0

    def note_fault(self, now: float) -> None:
        """Record a fault. A server with a broken sandbox responds fast, and would otherwise get all programs."""
        self.faults_in_a_row += 1
        if self.faults_in_a_row >= FAULTS_OF_A_BROKEN_SERVER:
            self.available_at = now + pause_s(self.faults_in_a_row - FAULTS_OF_A_BROKEN_SERVER)

    def note_failure(self, now: float, wait_s: float | None = None) -> None:
        """Record a failure, and pause with exponential backoff and jitter. Failures during a pause are the same one."""
        if not self.failures or now >= self.available_at:
            self.failures += 1
            wait_s = pause_s(self.failures - 1) if not wait_s else wait_s * random.uniform(1.0, 1.25)
            self.available_at = now + wait_s

    def note_unavailable(self, now: float, error: Unavailable) -> None:
        """Record a failure, or pause for the time that a full server requested."""
        if error.is_busy:
            wait_s = min(error.wait_s or 1.0, _LONGEST_BUSY_S)  # of hours for a quota; it may be raised before
            self.available_at = now + wait_s * random.uniform(1.0, 1.25)
        else:
            self.note_failure(now, error.wait_s)

    async def refresh(self) -> ServerAnswer:
        """Fetch properties and load of the server.

        Raises:
            Unavailable: it does not respond.
            ConfigError: it does not accept the token, its certificate is not trusted, or it is another kind of server.
            IsolationError: its isolation level is below the minimum.
        """
        try:
            self.info = ServerAnswer.model_validate(await self._call("GET", "/v1/server"))
        except CertificateError as error:
            raise ConfigError(
                f"judge server {self.url}: its certificate is not trusted ({error}). Fix: set "
                "judge.remote.certificate_file to the certificate of its issuer, or use the name in the certificate"
            ) from None
        except Rejected as error:
            if error.kind in ("unauthorized", "forbidden"):
                fix = "set judge.remote.token_variable or token_file, with a token of `autoclave serve token create`"
                raise ConfigError(f"judge server {self.url}: {error}. Fix: {fix}") from None
            raise ConfigError(f"judge.remote.urls: {self.url} is not a server of autoclave serve ({error})") from None
        except ValueError:
            raise ConfigError(f"judge.remote.urls: {self.url} is not a server of autoclave serve") from None
        self.num_foreign = max(self.info.waiting + self.info.running - self.num_in_flight, 0)
        level = self.info.level
        if level not in LEVELS or LEVELS.index(level) < LEVELS.index(self._minimum_level):
            raise IsolationError(
                f'judge server {self.url}: its level is "{level}"; sandbox.minimum_level = "{self._minimum_level}". '
                f"Fix: start it on a host that offers sealed cells, or accept less: sandbox.minimum_level={level}"
            )
        return self.info

    async def ensure(self, needs: Sequence[Need]) -> None:
        """Upload the problems that the server does not have.

        Raises:
            InputError: a problem cannot be judged there.
            HostError: something that a problem needs is missing on the server's machine.
            Unavailable: it does not respond.
            Rejected: it refuses the upload.
        """
        new = list({need.key: need for need in needs if need.key not in self.known}.values())
        if not new:
            return
        answer = await self._lookup(new)
        if answer.unknown:
            unknown = set(answer.unknown)
            await self._upload(list({need.digest: need for need in new if need.digest in unknown}.values()))
            answer = await self._lookup(new)  # problems needed in another language than the uploaded one
        for refused in answer.refused:
            raise HostError(f"{self.url}: {refused.message}") if refused.kind == "host" else InputError(refused.message)
        self.known.update(need.key for need in new)

    async def _lookup(self, needs: Sequence[Need]) -> LookupAnswer:
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

    def judge(self, body: Mapping[str, Any], key: str) -> AsyncGenerator[dict[str, Any]]:
        """Submit a batch and yield its events.

        Raises:
            Unavailable: the server does not respond, or the stream ended early.
            UnknownProblem: it does not have a problem any more.
            Rejected: it refuses the batch.
        """
        return self._events("POST", "/v1/batches", body, {"Idempotency-Key": key, "X-Request-Id": key})

    def watch(self, batch: str, after: int) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a batch after sequence number `after`. Raises as `judge` does."""
        return self._events("GET", f"/v1/batches/{batch}/stream?after={after}", None, {})

    async def trace(self, body: Mapping[str, Any]) -> Any:
        """Return a trace as JSON. Raises as `judge` does."""
        return (await self._call("POST", "/v1/traces", body))["trace"]

    async def cancel(self, path: str) -> None:
        """Cancel a job or a batch; errors are ignored."""
        with suppress(Unavailable, Rejected, UnknownProblem):  # then it expires
            await self._call("DELETE", path)

    async def close(self) -> None:
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
        raise Unavailable("the stream ended early")

    async def _require_success(self, reply: httpx.Response) -> None:
        if reply.status_code < 300:
            return
        await reply.aread()
        try:
            error = reply.json()["error"]
            kind, message = str(error["kind"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            kind, message = "http", f"status {reply.status_code}"
            if reply.status_code == 404 and self.info:  # a proxy whose server is unavailable
                raise Unavailable(message) from None
        if (reply.status_code >= 500 and kind != "host") or reply.status_code in (_BUSY, 408):
            wait_s = _retry_after(reply)
            is_busy = reply.status_code == _BUSY and wait_s is not None
            raise Unavailable(f"status {reply.status_code}: {message}", wait_s, is_busy=is_busy)
        if kind == "unknown_problem":
            raise UnknownProblem
        raise Rejected(kind, message)


def pause_s(attempt: int) -> float:
    """Return the pause in seconds after failure number `attempt`, from 0."""
    return min(FIRST_WAIT_S * 2 ** min(attempt, 10), LONGEST_WAIT_S) * random.uniform(0.75, 1.25)


def _content(body: Any, form: str) -> dict[str, Any]:
    """Return the arguments of a request; JSON in ASCII, because programs may hold lone surrogates."""
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
            return CertificateError(cause.verify_message)
        cause = cause.__cause__ or cause.__context__
    return Unavailable(" ".join(f"{type(error).__name__} {error}".split())[:300])
