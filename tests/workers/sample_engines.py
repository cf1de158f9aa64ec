"""Engines of the tests, where processes of their own can import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoclave.core import Completion, EngineFault, FaultError, FinishReason
from autoclave.rollout import EngineStats, Request
from autoclave.workers import Dispatch, WorkerGroup, register
from autoclave.workers.sampler.worker import SamplerWorker

VERSIONS = 10_000
"""Weights are a number that is the version modulo this."""


class CountingEngine:
    """Answers each request with as many tokens as it asks for, one for each step; a token is the weights of its time.

    The first number of a request's seed can order more: `KILL` ends the process, `HANG` stops it, `FAIL` raises, and
    with `BREAK` the engine is not to be used any more.
    """

    KILL, HANG, FAIL, BREAK = 101, 102, 103, 104

    def __init__(self, flags: str = "") -> None:
        """`flags` is a folder; what a request orders is done once, and noted there."""
        self._flags = flags
        self._requests: dict[int, Request] = {}
        self._tokens: dict[int, list[int]] = {}
        self._weights = self._sampled = 0

    def add(self, requests: Mapping[int, Request]) -> None:
        for number, request in requests.items():
            assert number not in self._requests
            self._requests[number], self._tokens[number] = request, []
            self._obey(request.seed[0])

    def step(self, seconds: float) -> list[tuple[int, Completion]]:
        for tokens in self._tokens.values():
            tokens.append(self._weights)
            self._sampled += 1
        time.sleep(0.001)
        done = {n for n, tokens in self._tokens.items() if len(tokens) >= self._requests[n].parameters.max_new_tokens}
        return [(number, self._pop(number)) for number in sorted(done)]

    def update_weights(self, version: int, weights: int) -> None:
        assert weights in range(version, VERSIONS**2, VERSIONS), "the weights of another version"
        self._weights = weights

    @property
    def stats(self) -> EngineStats:
        return EngineStats(len(self._requests), 0, 0, self._sampled)

    def close(self) -> None:
        """There is nothing to free."""

    def _obey(self, order: int) -> None:
        flag = os.path.join(self._flags, str(order))
        if not self._flags or os.path.exists(flag):
            return
        if order in (self.KILL, self.HANG, self.FAIL, self.BREAK):
            open(flag, "w").close()
        if order == self.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if order == self.HANG:
            os.kill(os.getpid(), signal.SIGSTOP)
        if order == self.BREAK:
            raise EngineFault("the engine is dead")
        if order == self.FAIL:
            raise FaultError("the engine is broken")

    def _pop(self, number: int) -> Completion:
        request, tokens = self._requests.pop(number), self._tokens.pop(number)
        starts = [place for place, token in enumerate(tokens) if place == 0 or token != tokens[place - 1]]
        versions = [tokens[start] % VERSIONS for start in starts]
        return Completion(
            prompt_tokens=request.prompt_tokens,
            tokens=np.array(tokens, dtype=np.int64),
            log_probs=np.zeros(len(tokens), dtype=np.float32),
            log_prob_kind="raw",
            finish_reason=FinishReason.STOP,
            text=f"{request.seed} by {os.getpid()}",
            policy_versions=tuple(zip(versions, starts, [*starts[1:], len(tokens)], strict=True)),
            submitted_at=0.0,
            finished_at=0.0,
        )


class CountingWorker(SamplerWorker):
    """Weights come with the call: no trainer is there, and no tensor."""

    @register(Dispatch.ONE_TO_ALL)
    def be_handed(self, version: int, weights: Any) -> None:
        self._engine.update_weights(version, weights)


@dataclass(frozen=True)
class Handed:
    """A `WeightSource` for such workers."""

    version: int
    weights: Any

    def deliver(self, group: WorkerGroup, call: Callable[..., Any]) -> int:
        call("be_handed", self.version, self.weights)
        return self.version

    def release(self, group: WorkerGroup, call: Callable[..., Any]) -> None:
        """They hold nothing that others need."""


def numbered(version: int) -> Handed:
    """What a `CountingEngine` takes over."""
    return Handed(version, version)


def make_worker(flags: str = "") -> SamplerWorker:
    return CountingWorker(CountingEngine(flags))
