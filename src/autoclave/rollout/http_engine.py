"""Sampling on a server, over HTTP: the same protocol as engines in this process.

A thread for each request at the server reads the stream and puts it into a queue; the calling thread does everything
else, from that queue. A request that is cut off, by a broken connection or by new weights, continues from the tokens
that have arrived: they become part of its prompt.
"""

import os
import queue
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from torch import Tensor

from autoclave.config import OpenAiEngineConfig, SglangEngineConfig
from autoclave.core import Completion, ConfigError, EngineFault, FinishReason
from autoclave.core.rollout import LogProbKind
from autoclave.rollout.http_dialects import Dialect, OpenAi, Piece, Sglang, Wanted
from autoclave.rollout.http_server import Disconnected, Line, Server, Unavailable, waiting_s
from autoclave.rollout.interface import EngineStats, Request
from autoclave.rollout.responses import Growing, Responses, load_responses

PATIENCE_S = 0.05
"""Longest wait for the server in seconds, where something else may have to be done."""


@dataclass(slots=True)
class _Call:
    """A request at the server."""

    growing: Growing
    line: Line = field(default_factory=Line)
    tries: int = 0
    prompt_tokens: int = 0
    """Tokens of its context that were computed, as the server reports."""


class HttpEngine:
    """Samples with the model of a server. See `Engine`."""

    def __init__(self, dialect: Dialect, responses: Responses, *, concurrency: int, retries: int) -> None:
        self._dialect, self._responses = dialect, responses
        self._concurrency, self._retries = concurrency, retries
        self._version = self._serial = 0
        self._waiting: deque[Growing] = deque()
        self._calls: dict[int, _Call] = {}
        self._arrived: queue.SimpleQueue[tuple[_Call, Piece | BaseException]] = queue.SimpleQueue()
        self._over: list[tuple[int, Completion]] = []
        self._prompt_tokens = self._sampled_tokens = 0

    def add(self, requests: Mapping[int, Request]) -> None:
        """See `Engine`.

        Raises InputError: the server's log-probs of one would be of another distribution; none is added.
        """
        for request in requests.values():
            self._dialect.kind(request.parameters)
        self._waiting += [Growing(number, request, [(self._version, 0)]) for number, request in requests.items()]

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        """See `Engine`. Raises EngineFault: the server does not answer any more. InputError: it refuses a request."""
        deadline = time.monotonic() + seconds
        while self._waiting or self._calls:
            self._dispatch()
            left = deadline - time.monotonic()
            self._take_arrived(min(PATIENCE_S, max(left, 0.001)))
            if left <= 0:
                break
        over, self._over = self._over, []
        return over

    def update_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """See `Engine`. Requests at the server are cut off, and continue with the new weights.

        Raises ConfigError: this server takes no weights. EngineFault: it refused them, or does not answer.
        """
        self._take_arrived(0.0)
        for call in self._calls.values():
            call.line.cut()
        self._waiting.extendleft(call.growing for call in reversed(list(self._calls.values())))
        self._calls.clear()
        self._dialect.update_weights(version, weights)
        self._version = version
        for growing in self._waiting:
            growing.versions.append((version, len(growing.tokens)))

    @property
    def stats(self) -> EngineStats:
        """See `Engine`. A prompt counts when its request ends, less the tokens that the server reports as cached."""
        running = len(self._calls)
        return EngineStats(running, len(self._waiting), self._prompt_tokens, self._sampled_tokens)

    def close(self) -> None:
        """Cut off all requests."""
        for call in self._calls.values():
            call.line.cut()
        self._calls.clear()
        self._waiting.clear()

    # --- On the thread that calls

    def _dispatch(self) -> None:
        while self._waiting and len(self._calls) < self._concurrency:
            growing = self._waiting.popleft()
            if reason := self._reason(growing):  # it was cut off after its last token
                self._end(growing, reason)
            else:
                self._start(_Call(growing))

    def _start(self, call: _Call, wait_s: float = 0.0) -> None:
        growing, self._serial = call.growing, self._serial + 1
        self._calls[growing.number] = call
        call.line = Line()
        done = len(growing.tokens)
        wanted = Wanted(
            name=f"autoclave-{os.getpid()}-{id(self)}-{self._serial}",
            context=[*growing.request.prompt_tokens.tolist(), *growing.tokens],
            parameters=growing.request.parameters,
            tokens=growing.tokens_left,
            # What goes on must not draw the random numbers of its beginning again.
            seed=(*growing.request.seed, done) if done else growing.request.seed,
            end_tokens=sorted(self._responses.end_tokens),
        )
        Thread(target=self._read, args=(call, call.line, wanted, wait_s), daemon=True, name="engine-request").start()

    def _take_arrived(self, patience_s: float) -> None:
        """Process what the threads have put into the queue; wait at most `patience_s` for the first."""
        try:
            call, found = self._arrived.get(timeout=patience_s) if patience_s else self._arrived.get_nowait()
            while True:
                if self._calls.get(call.growing.number) is call:  # otherwise it was cut off
                    self._take(call, found)
                call, found = self._arrived.get_nowait()
        except queue.Empty:
            return

    def _take(self, call: _Call, found: Piece | BaseException) -> None:
        growing = call.growing
        if isinstance(found, Piece):
            self._append(growing, found)
            call.tries = 0 if found.tokens else call.tries
            reason = self._reason(growing) or found.reason
            if found.reason:
                self._prompt_tokens += len(growing.request.prompt_tokens) - found.cached_tokens
            if reason:
                call.line.cut()
                del self._calls[growing.number]
                self._end(growing, reason)
        elif not isinstance(found, Unavailable):
            del self._calls[growing.number]
            raise found
        elif call.tries >= self._retries:
            raise EngineFault(f"the server does not answer, after {call.tries + 1} tries: {found}") from found
        else:
            call.tries += 1
            self._start(call, wait_s=waiting_s(call.tries - 1, found))

    def _append(self, growing: Growing, piece: Piece) -> None:
        if len(piece.tokens) != len(piece.log_probs):
            raise EngineFault(f"the server gave {len(piece.tokens)} tokens and {len(piece.log_probs)} log-probs")
        growing.append(piece.tokens, piece.log_probs)
        self._sampled_tokens += len(piece.tokens)

    def _reason(self, growing: Growing) -> FinishReason | None:
        """Return the finish reason if the response has ended; drop tokens after the one that completes a stop string.

        The server misses a stop string that began before the request was cut off.
        """
        stops, tokens = growing.request.parameters.stops, growing.tokens
        if stops and self._is_complete(tokens, stops):
            length = next(n for n in range(1, len(tokens) + 1) if self._is_complete(tokens[:n], stops))
            del growing.tokens[length:], growing.log_probs[length:]
            return FinishReason.STOP
        if tokens and tokens[-1] in self._responses.end_tokens:
            return FinishReason.STOP
        return None if growing.tokens_left > 0 else FinishReason.LENGTH

    def _is_complete(self, tokens: list[int], stops: tuple[str, ...]) -> bool:
        text = self._responses.text(tokens)
        return any(stop in text for stop in stops)

    def _end(self, growing: Growing, reason: FinishReason) -> None:
        kind: LogProbKind = self._dialect.kind(growing.request.parameters)
        self._over.append((growing.number, self._responses.completion(growing, reason, kind)))

    # --- On a thread of its own

    def _read(self, call: _Call, line: Line, wanted: Wanted, wait_s: float) -> None:
        if line.is_cut.wait(wait_s):
            return
        try:
            for piece in self._dialect.stream(wanted, line):
                self._arrived.put((call, piece))
                if piece.reason:
                    return
            raise Unavailable("the stream ended without a reason")
        except Disconnected:
            return
        except BaseException as error:  # noqa: BLE001  it is raised on the thread that calls
            self._arrived.put((call, error))


def openai_engine(settings: OpenAiEngineConfig, model_folder: Path) -> HttpEngine:
    """An engine on a server compatible with OpenAI's, for the policy whose tokenizer is in `model_folder`.

    Raises ConfigError: a setting is missing. EngineFault: the server does not answer.
    """
    dialect = OpenAi(_server(settings), settings.model, settings.log_probs)
    return _engine(dialect, settings, model_folder)


def sglang_engine(settings: SglangEngineConfig, model_folder: Path) -> HttpEngine:
    """An engine on a server of SGLang's, which was started with the policy in `model_folder`.

    Raises ConfigError: a setting is missing. EngineFault: the server does not answer.
    """
    return _engine(Sglang(_server(settings), model_folder, settings.weights_folder), settings, model_folder)


def _engine(dialect: Dialect, settings: SglangEngineConfig | OpenAiEngineConfig, folder: Path) -> HttpEngine:
    return HttpEngine(dialect, load_responses(folder), concurrency=settings.concurrency, retries=settings.retries)


def _server(settings: SglangEngineConfig | OpenAiEngineConfig) -> Server:
    if not settings.url:
        raise ConfigError(f"sampler.engine.url: name the server of engine {settings.name}, such as http://host:30000")
    key = os.environ.get(settings.api_key_variable, "") if settings.api_key_variable else ""
    if settings.api_key_variable and not key:
        raise ConfigError(f"sampler.engine.api_key_variable = {settings.api_key_variable!r}: it is not set")
    return Server(settings.url.rstrip("/"), settings.timeout_s, settings.retries, key)
