"""State of a pool's replicas: their requests, the inputs of their engines, weights in flight.

Only data: the pool's lock guards all of it, and nothing here waits or calls a worker.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from autoclave.core import AutoclaveError, Completion, EngineFault, FaultError
from autoclave.rollout import EngineStats, Request
from autoclave.rollout.interface import broken_rule
from autoclave.workers.group import WorkerGroup
from autoclave.workers.sampler.worker import Batches, SamplerWorker, StepOutput


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that has not ended."""

    number: int
    request: Request
    future: Future[Completion]


@dataclass(slots=True)
class EngineQueue:
    """Requests of one engine, as the driver knows them."""

    batches: list[list[PendingRequest]] = field(default_factory=list[list[PendingRequest]])
    """Not yet handed over."""
    running: dict[int, PendingRequest] = field(default_factory=dict[int, PendingRequest])
    """Handed over, not ended."""
    stats: EngineStats = field(default_factory=lambda: EngineStats(0, 0, 0, 0))
    silent_s: float = 0.0
    """Seconds of sampling in which `stats` have not changed."""

    @property
    def outstanding(self) -> int:
        return len(self.running) + sum(map(len, self.batches))

    def take_batches(self) -> Batches:
        """Return the requests for the engine's next step; they count as running from here."""
        batches = tuple({each.number: each.request for each in batch} for batch in self.batches)
        self.running |= {each.number: each for batch in self.batches for each in batch}
        self.batches = []
        return batches

    def check(self, step_output: StepOutput, engine: str, version: int) -> None:
        """Check that each completion is of a running request and sound, and that the engine still has all others.

        Raises EngineFault: otherwise; the message names `engine` and the request.
        """
        answers = Counter(number for number, _ in step_output.done)
        for number, times in answers.items():
            if number not in self.running:
                raise EngineFault(f"{engine} answered request number {number}, which it does not have")
            if times > 1:
                raise EngineFault(f"{engine} answered request {self.running[number].request.seed} {times} times")
        for number, done in step_output.done:
            if rule := broken_rule(done, version):
                raise EngineFault(f"{engine} answered request {self.running[number].request.seed} wrongly: {rule}")
        left = [pending_request for number, pending_request in self.running.items() if number not in answers]
        has = step_output.stats.running + step_output.stats.waiting
        if has < len(left):
            raise EngineFault(
                f"{engine} has lost requests: {len(left)} have not ended, such as {left[0].request.seed}, "
                f"and it has {has}"
            )

    def require_progress(self, stats: EngineStats, engine: str, step_s: float, timeout_s: float) -> None:
        """Count a step of `step_s` seconds; EngineFault if nothing moved in `timeout_s` seconds of them."""
        self.silent_s = self.silent_s + step_s if stats == self.stats and self.running else 0.0
        if self.silent_s > timeout_s:
            raise EngineFault(
                f"{engine} has not sampled a token for {timeout_s:.0f} s (sampler.timeout_s): by its stats "
                f"{stats.running} requests run and {stats.waiting} wait; it was ended"
            )

    def take_done(self, step_output: StepOutput) -> list[tuple[PendingRequest, Completion]]:
        """Return the requests that have ended; call `check` first."""
        self.stats = step_output.stats
        return [(self.running.pop(number), completion) for number, completion in step_output.done]

    def take_unfinished(self) -> list[PendingRequest]:
        """Return all requests that have not ended, in the order of their numbers, and empty the queue."""
        pending = sorted(
            [*self.running.values(), *(t for batch in self.batches for t in batch)], key=lambda t: t.number
        )
        self.batches, self.running, self.silent_s = [], {}, 0.0
        return pending


class WeightSource(Protocol):
    """Source of the current weights. Each method is called by several threads, one for each group.

    `call(method, *arguments)` calls the workers of the group, waits for them as the pool does, and returns or raises
    what they did.
    """

    def deliver(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> int:
        """Load the current weights in `group`, which may be new or restarted. Return their version."""
        ...

    def release(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> None:
        """Have `group` release its weights: it does not sample until some are delivered."""


@dataclass(slots=True)
class Update:
    """A pending update of a replica's weights."""

    version: int
    drains: bool
    done: Future[None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Replica:
    """A worker group that samples."""

    group: WorkerGroup[SamplerWorker]
    queues: list[EngineQueue]
    restarts_left: int
    update: Update | None = None
    version: int | None = None
    """Version of its weights."""
    is_leaving: bool = False
    doing: str = ""
    """Call that its thread waits for; empty while none is in flight."""

    @property
    def is_idle(self) -> bool:
        return not any(queue.outstanding for queue in self.queues)

    @property
    def runs(self) -> bool:
        """True if its engines have requests."""
        return any(queue.running for queue in self.queues)

    def take_unfinished(self) -> list[PendingRequest]:
        return [each for queue in self.queues for each in queue.take_unfinished()]

    def state(self) -> str:
        """Description of its state; it changes whenever the replica progresses."""
        engines = "; ".join(
            f"engine {rank}: {len(queue.running)} requests run, {sum(map(len, queue.batches))} wait, "
            f"{queue.stats.sampled_tokens} tokens sampled"
            for rank, queue in enumerate(self.queues)
        )
        coming = f", version {self.update.version} is to come" if self.update else ""
        return (
            f"{self.group.name}: {self.doing or 'waits for work'}; weights of version {self.version or 0}{coming}; "
            f"{engines}; {self.restarts_left} restarts left"
        )


def by_prompt(pending: Iterable[PendingRequest]) -> list[list[PendingRequest]]:
    return [
        list(group)
        for _, group in groupby(pending, key=lambda pending_request: pending_request.request.prompt_tokens.tobytes())
    ]


def fail(pending: Iterable[PendingRequest], error: BaseException) -> None:
    for pending_request in pending:
        pending_request.future.set_exception(error)


def refused(error: BaseException, version: int, name: str) -> BaseException:
    """Return `error`, with which replica `name` refused the weights of `version`, with both in its message."""
    message = (
        f"weights of version {version} did not reach {name}: {' '.join(str(error).split()) or type(error).__name__}"
    )
    named = type(error)(message) if isinstance(error, AutoclaveError) else FaultError(message)
    named.__dict__.update(error.__dict__)
    named.__cause__ = error
    return named


def when_all_are_done(parts: Sequence[Future[None]], whole: Future[None]) -> None:
    """Set `whole` when the last of `parts` is set, with the first error among them."""
    lock, left = threading.Lock(), [len(parts)]

    def note(_: Future[None]) -> None:
        with lock:
            left[0] -= 1
            if left[0]:
                return
        error = next((part.exception() for part in parts if part.exception()), None)
        whole.set_exception(error) if error else whole.set_result(None)

    for part in parts:
        part.add_done_callback(note)
