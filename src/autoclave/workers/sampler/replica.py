"""What a pool of samplers knows of its replicas: their requests, what their engines were told, weights on their way.

Only data: the pool's lock guards all of it, and nothing here waits or calls a worker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from autoclave.core import AutoclaveError, Completion, EngineFault, FaultError, FinishReason
from autoclave.rollout import EngineStats, Request
from autoclave.workers.group import WorkerGroup
from autoclave.workers.sampler.orders import Orders, Progress
from autoclave.workers.sampler.worker import SamplerWorker


@dataclass(slots=True, eq=False)
class Ticket:
    """A request on its way."""

    number: int
    request: Request
    future: Future[Completion]
    is_aborted: bool = False
    """Its engine was told to end it, and has not answered."""


@dataclass(slots=True)
class Desk:
    """What the driver knows of one engine."""

    waves: list[list[Ticket]] = field(default_factory=list[list[Ticket]])
    """Not yet handed over."""
    running: dict[int, Ticket] = field(default_factory=dict[int, Ticket])
    """Handed over and not done."""
    aborted: list[int] = field(default_factory=list[int])
    stats: EngineStats = field(default_factory=lambda: EngineStats(0, 0, 0, 0))

    @property
    def outstanding(self) -> int:
        """Requests that are not done."""
        return len(self.running) + sum(map(len, self.waves))

    def take_orders(self) -> Orders:
        """What the engine is to be told; from now on it runs."""
        waves = tuple({ticket.number: ticket.request for ticket in wave} for wave in self.waves)
        self.running |= {ticket.number: ticket for wave in self.waves for ticket in wave}
        orders = Orders(waves, tuple(self.aborted))
        self.waves, self.aborted = [], []
        return orders

    def abort(self, wanted: set[int]) -> list[Ticket]:
        """End those whose futures have these ids: the engine is told of those it has; the others are returned."""
        for ticket in self.running.values():
            if id(ticket.future) in wanted and not ticket.is_aborted:
                ticket.is_aborted = True
                self.aborted.append(ticket.number)
        waiting = [ticket for wave in self.waves for ticket in wave if id(ticket.future) in wanted]
        kept = ([ticket for ticket in wave if id(ticket.future) not in wanted] for wave in self.waves)
        self.waves = [wave for wave in kept if wave]
        return waiting

    def check(self, progress: Progress, engine: str) -> None:
        """Check that each answer is one to a request that runs, and that the engine still has all the others.

        Raises:
            EngineFault: it is not so; the message names `engine` and the request.
        """
        answers = Counter(number for number, _ in progress.done)
        for number, times in answers.items():
            if number not in self.running:
                raise EngineFault(
                    f"{engine} answered request number {number}, which it was never asked or has answered"
                )
            if times > 1:
                raise EngineFault(f"{engine} answered request {self.running[number].request.seed} {times} times")
        left = [ticket for number, ticket in self.running.items() if number not in answers]
        has = progress.stats.running + progress.stats.waiting
        if has < len(left):
            raise EngineFault(
                f"{engine} has lost requests: {len(left)} are not answered, such as {left[0].request.seed}, "
                f"and it has {has}"
            )

    def take_done(self, progress: Progress) -> list[tuple[Ticket, Completion]]:
        """The requests that are done; `check` comes first."""
        self.stats = progress.stats
        return [(self.running.pop(number), completion) for number, completion in progress.done]

    def take_back(self) -> list[Ticket]:
        """All that is not done, in the order in which it was asked; the engine has nothing any more."""
        tickets = sorted([*self.running.values(), *(t for wave in self.waves for t in wave)], key=lambda t: t.number)
        self.waves, self.running, self.aborted = [], {}, []
        return tickets


class WeightSource(Protocol):
    """Where the weights that count are. Each method is called by several threads, one for each group.

    `call(method, *arguments)` calls the workers of the group, waits for them as the pool does, and returns or raises
    what they did.
    """

    def deliver(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> int:
        """Have `group` take over the weights that count; returns their version. It may be new, or made anew."""
        ...

    def release(self, group: WorkerGroup[Any], call: Callable[..., Any]) -> None:
        """Have `group` let go of its weights: it samples no more until some are delivered."""
        ...


@dataclass(slots=True)
class Update:
    """Weights on their way to a replica."""

    version: int
    drains: bool
    done: Future[None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Replica:
    """A worker group that samples."""

    group: WorkerGroup[SamplerWorker]
    desks: list[Desk]
    restarts_left: int
    update: Update | None = None
    version: int | None = None
    """Of the weights that it took over last."""
    is_leaving: bool = False
    doing: str = ""
    """What its thread waits for; empty while it has nothing under way."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no request."""
        return not any(desk.outstanding for desk in self.desks)

    @property
    def runs(self) -> bool:
        """Whether its engines have requests."""
        return any(desk.running for desk in self.desks)

    def take_back(self) -> list[Ticket]:
        """The requests of all its engines that are not done."""
        return [ticket for desk in self.desks for ticket in desk.take_back()]

    def state(self) -> str:
        """What it does, in words; the same as long as nothing moves."""
        engines = "; ".join(
            f"engine {rank}: {len(desk.running)} requests run, {sum(map(len, desk.waves))} wait, "
            f"{desk.stats.sampled_tokens} tokens sampled"
            for rank, desk in enumerate(self.desks)
        )
        coming = f", version {self.update.version} is to come" if self.update else ""
        return (
            f"{self.group.name}: {self.doing or 'waits for work'}; weights of version {self.version or 0}{coming}; "
            f"{engines}; {self.restarts_left} restarts left"
        )


def by_prompt(tickets: Iterable[Ticket]) -> list[list[Ticket]]:
    """Those of equal prompts that stand together."""
    return [list(group) for _, group in groupby(tickets, key=lambda ticket: ticket.request.prompt_tokens.tobytes())]


def fail(tickets: Iterable[Ticket], error: BaseException) -> None:
    """End these in an error."""
    for ticket in tickets:
        ticket.future.set_exception(error)


def without_aborted(tickets: Iterable[Ticket]) -> tuple[list[Ticket], list[Ticket]]:
    """Those that are still wanted, and those that were to be ended: their engine took what it had of them along."""
    every = list(tickets)
    return [ticket for ticket in every if not ticket.is_aborted], [ticket for ticket in every if ticket.is_aborted]


def end_empty(tickets: Iterable[Ticket]) -> None:
    """End these as aborted, without a token."""
    for ticket in tickets:
        ticket.future.set_result(_nothing_of(ticket.request))


def refused(error: BaseException, version: int, name: str) -> BaseException:
    """`error`, which replica `name` ended with over the weights of a version, with both in its message."""
    message = (
        f"weights of version {version} did not reach {name}: {' '.join(str(error).split()) or type(error).__name__}"
    )
    named = type(error)(message) if isinstance(error, AutoclaveError) else FaultError(message)
    named.__dict__.update(error.__dict__)
    named.__cause__ = error
    return named


def _nothing_of(request: Request) -> Completion:
    now = time.time()
    return Completion(
        prompt_tokens=request.prompt_tokens,
        tokens=np.zeros(0, dtype=np.int64),
        log_probs=np.zeros(0, dtype=np.float32),
        log_prob_kind="raw",
        finish_reason=FinishReason.ABORT,
        text="",
        policy_versions=(),
        submitted_at=now,
        finished_at=now,
    )
