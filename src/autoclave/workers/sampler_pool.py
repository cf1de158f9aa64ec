"""All engines of a run as one `Sampler`: requests are dealt to them, and survive them.

A thread for each replica, a worker group, asks its engines to sample on, a little at a time; between two such calls
they get new requests, abortions and weights. What a replica has not finished when it dies is asked again once it is
back with the weights that count, so every request ends exactly once: in a completion or in an error.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as CallTimeout
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import Any

import numpy as np

from autoclave.core import Completion, EngineFault, FaultError, FinishReason, WorkerDied
from autoclave.rollout import EngineStats, Request
from autoclave.workers.group import WorkerGroup
from autoclave.workers.sampler import SamplerWorker
from autoclave.workers.sampler_orders import Orders, Progress

SLICE_S = 0.05
"""How long engines sample before they hand over what is done, and hear of anything new."""

START_S = 3600.0
"""A replica that is not back after so long is given up."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A request on its way."""

    number: int
    request: Request
    future: Future[Completion]


@dataclass(slots=True)
class _Desk:
    """What the driver knows of one engine."""

    waves: list[list[_Ticket]] = field(default_factory=list[list[_Ticket]])
    """Not yet handed over."""
    running: dict[int, _Ticket] = field(default_factory=dict[int, _Ticket])
    """Handed over and not done."""
    aborted: list[int] = field(default_factory=list[int])
    stats: EngineStats = field(default_factory=lambda: EngineStats(0, 0, 0, 0))

    @property
    def outstanding(self) -> int:
        return len(self.running) + sum(map(len, self.waves))

    def take_orders(self) -> Orders:
        """What the engine is to be told; from now on it runs."""
        waves = tuple({ticket.number: ticket.request for ticket in wave} for wave in self.waves)
        self.running |= {ticket.number: ticket for wave in self.waves for ticket in wave}
        orders = Orders(waves, tuple(self.aborted))
        self.waves, self.aborted = [], []
        return orders

    def take_back(self) -> list[_Ticket]:
        """All that is not done, in the order in which it was asked; the engine has nothing any more."""
        tickets = sorted([*self.running.values(), *(t for wave in self.waves for t in wave)], key=lambda t: t.number)
        self.waves, self.running, self.aborted = [], {}, []
        return tickets


@dataclass(slots=True)
class _Update:
    """Weights on their way to a replica."""

    version: int
    weights: Any
    drains: bool
    done: Future[None] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Replica:
    group: WorkerGroup[SamplerWorker]
    desks: list[_Desk]
    restarts_left: int
    update: _Update | None = None
    is_leaving: bool = False

    @property
    def is_idle(self) -> bool:
        return not any(desk.outstanding for desk in self.desks)

    @property
    def runs(self) -> bool:
        return any(desk.running for desk in self.desks)


class SamplerPool:
    """A `Sampler` on replicas that come and go."""

    def __init__(
        self,
        groups: Sequence[WorkerGroup[SamplerWorker]],
        *,
        in_flight: int | None = None,
        restarts: int = 0,
        timeout_s: float = 600.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Sample on `groups`, whose engines all hold the same weights.

        Args:
            groups: the replicas; each has one engine per rank.
            in_flight: most requests that an engine has at a time; the others wait here, for whichever is free first.
                None deals requests at once, in an order that does not depend on time.
            restarts: how often the processes of a replica may be started anew.
            timeout_s: after so long without an answer, the processes of a replica are ended.
            say: hears of replicas that died.
        """
        self._in_flight, self._restarts, self._timeout_s, self._say = in_flight, restarts, timeout_s, say
        self._changed = threading.Condition()
        self._replicas: list[_Replica] = []
        self._threads: list[threading.Thread] = []
        self._queue: deque[list[_Ticket]] = deque()
        self._numbers = count()
        self._next_engine = 0
        self._published: tuple[int, Any] | None = None
        self._is_paused = self._is_closed = False
        for group in groups:
            self.attach(group)

    # --- Requests

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """A future for each of `requests`, a wave; samples of one prompt that stand together stay on one engine.

        Raises:
            RuntimeError: it is closed.
            FaultError: no replica is left.
        """
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the samplers are closed")
            if not self._replicas:
                raise FaultError("no sampler is left: all of them died, or have left")
            tickets = [_Ticket(next(self._numbers), request, Future()) for request in requests]
            for ticket in tickets:
                ticket.future.set_running_or_notify_cancel()
            self._deal(_by_prompt(tickets))
            self._changed.notify_all()
        return [ticket.future for ticket in tickets]

    def abort(self, futures: Collection[Future[Completion]]) -> None:
        """End the requests of these futures; each is given what was sampled so far, with the reason ABORT."""
        wanted = set(map(id, futures))
        with self._changed:
            for replica in self._replicas:
                for desk in replica.desks:
                    tickets = [*desk.running.values(), *(ticket for wave in desk.waves for ticket in wave)]
                    desk.aborted += [ticket.number for ticket in tickets if id(ticket.future) in wanted]
            queued = [ticket for group in self._queue for ticket in group if id(ticket.future) in wanted]
            kept = ([ticket for ticket in group if id(ticket.future) not in wanted] for group in self._queue)
            self._queue = deque(group for group in kept if group)
            self._changed.notify_all()
        for ticket in queued:
            ticket.future.set_result(_nothing_of(ticket.request))

    def pause(self) -> None:
        """Sample nothing until `resume`; what runs stands still where it is."""
        with self._changed:
            self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        with self._changed:
            self._is_paused = False
            self._changed.notify_all()

    # --- Weights

    def update_weights(self, version: int, weights: Any, *, drains: bool = False) -> Future[None]:
        """Have all engines sample with `weights`, or with what this future holds, called `version`, from now on.

        Requests in the making go on with them; with `drains`, those that an engine has are sampled to the end first.

        Raises:
            ValueError: the version is not newer than the last one.
            RuntimeError: somebody does not have the last one yet.
        """
        with self._changed:
            if self._published and version <= self._published[0]:
                raise ValueError(f"weights of version {version} come after those of version {self._published[0]}")
            if slow := [replica.group.name for replica in self._replicas if replica.update]:
                raise RuntimeError(f"weights of version {version}: {slow[0]} has not taken over the last ones yet")
            self._published = (version, weights)
            updates = [_Update(version, weights, drains) for _ in self._replicas]
            for replica, update in zip(self._replicas, updates, strict=True):
                replica.update = update
            self._changed.notify_all()
        return _when_all_are_done([update.done for update in updates])

    # --- Replicas

    @property
    def groups(self) -> list[WorkerGroup[SamplerWorker]]:
        """Those that sample, in the order in which they came."""
        with self._changed:
            return [replica.group for replica in self._replicas]

    def attach(self, group: WorkerGroup[SamplerWorker]) -> None:
        """Sample on this group too. It gets the weights that count before its first request."""
        replica = _Replica(group, [_Desk() for _ in group.nodes], self._restarts)
        with self._changed:
            if self._published:
                replica.update = _Update(*self._published, drains=False)
            self._replicas.append(replica)
        thread = threading.Thread(target=self._serve, args=(replica,), name=f"sampler-{group.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def detach(self, group: WorkerGroup[SamplerWorker]) -> None:
        """Sample on this group no more; what it has not done is asked of the others. Its workers stay.

        Raises:
            ValueError: no other group is left.
        """
        with self._changed:
            (replica,) = (replica for replica in self._replicas if replica.group is group)
            if len(self._replicas) == 1:
                raise ValueError(f"{group.name} is the only sampler; attach another one first")
            replica.is_leaving = True
            self._changed.notify_all()

    def stats(self) -> dict[str, EngineStats]:
        """What each engine did when it was last heard of, by the name of its group and its rank."""
        with self._changed:
            return {
                f"{replica.group.name}/{rank}": desk.stats
                for replica in self._replicas
                for rank, desk in enumerate(replica.desks)
            }

    def outstanding(self) -> int:
        """Requests that are not done."""
        with self._changed:
            return self._outstanding()

    def restart(self) -> None:
        """Make all workers anew with the models that they were made with; what was asked is forgotten."""
        with self._changed:
            replicas, tickets = list(self._replicas), self._take_back_all()
            self._published, self._is_paused, self._next_engine = None, False, 0
        _fail(tickets, RuntimeError("the samplers were started anew"))
        for restarted in [replica.group.restart() for replica in replicas]:
            restarted.result()

    def close(self) -> None:
        """End all threads; requests that are not done end in an error."""
        with self._changed:
            self._is_closed = True
            tickets = self._take_back_all()
            self._changed.notify_all()
        _fail(tickets, RuntimeError("sampling was cancelled: the samplers are closed"))

    # --- Dealing; with the lock

    def _deal(self, groups: list[list[_Ticket]]) -> None:
        if self._in_flight is not None:
            self._queue += groups
            return
        desks = [desk for replica in self._replicas for desk in replica.desks]
        for number, desk in enumerate(desks):
            # Each engine in turn gets the next group: of equal waves, the same groups are always together.
            wave = [t for group in groups[(number - self._next_engine) % len(desks) :: len(desks)] for t in group]
            if wave:
                desk.waves.append(wave)
        self._next_engine = (self._next_engine + len(groups)) % len(desks)

    def _feed(self, replica: _Replica) -> None:
        """Give the engines of a replica what waits, as much as they have room for."""
        limit = self._in_flight or 0
        if replica.update and replica.update.drains:
            return
        for desk in sorted(replica.desks, key=lambda desk: desk.outstanding):
            while self._queue and (not desk.outstanding or desk.outstanding + len(self._queue[0]) <= limit):
                desk.waves.append(self._queue.popleft())

    def _outstanding(self) -> int:
        return sum(map(len, self._queue)) + sum(desk.outstanding for r in self._replicas for desk in r.desks)

    def _take_back_all(self) -> list[_Ticket]:
        tickets = [ticket for group in self._queue for ticket in group]
        self._queue.clear()
        return tickets + [ticket for r in self._replicas for desk in r.desks for ticket in desk.take_back()]

    # --- The thread of a replica

    def _serve(self, replica: _Replica) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_to_do(replica))
                if self._is_closed:
                    return
                if replica.is_leaving:
                    self._let_go(replica)
                    return
                update = self._due_update(replica)
                if not update and self._in_flight is not None:
                    self._feed(replica)
                orders = [] if update else [desk.take_orders() for desk in replica.desks]
            try:
                if update:
                    self._call(replica, "take over weights", "update_weights", update.version, update.weights)
                    update.done.set_result(None)
                    with self._changed:
                        replica.update = None if replica.update is update else replica.update
                else:
                    self._hand_over(replica, self._call(replica, "sample", "advance", orders, SLICE_S))
            except BaseException as error:  # noqa: BLE001  every request ends in a completion or an error
                if not self._recover(replica, error):
                    return

    def _has_to_do(self, replica: _Replica) -> bool:
        if self._is_closed or replica.is_leaving or self._due_update(replica):
            return True
        if self._is_paused:
            return False
        return not replica.is_idle or bool(self._queue and not replica.update)

    def _due_update(self, replica: _Replica) -> _Update | None:
        update = replica.update
        return update if update and not (update.drains and replica.runs) else None

    def _call(self, replica: _Replica, what: str, method: str, *args: Any) -> Any:
        """Call the workers of a replica, which are ended if they do not answer."""
        call = getattr(replica.group, method)(*args)
        try:
            return call.result(self._timeout_s)
        except CallTimeout:
            if call.done():
                raise  # the worker's own
            replica.group.kill()
            raise WorkerDied.of(
                replica.group.name,
                0,
                replica.group.nodes[0],
                f"was to {what} and has not answered for {self._timeout_s:.0f} s (sampler.timeout_s); it was ended",
            ) from None

    def _hand_over(self, replica: _Replica, answers: list[Progress]) -> None:
        finished: list[tuple[_Ticket, Completion]] = []
        with self._changed:
            for desk, progress in zip(replica.desks, answers, strict=True):
                desk.stats = progress.stats
                # What was taken back meanwhile is no longer among those that run.
                found = ((desk.running.pop(number, None), completion) for number, completion in progress.done)
                finished += [(ticket, completion) for ticket, completion in found if ticket]
            self._changed.notify_all()
        for ticket, completion in finished:
            ticket.future.set_result(replace(completion, sampled_by=replica.group.name))

    def _recover(self, replica: _Replica, error: BaseException) -> bool:
        """Bring a replica back that failed, with all that it had to do; whether it is back."""
        if isinstance(error, CancelledError):
            error = RuntimeError("sampling was cancelled: the pool of the samplers is closed")
        while isinstance(error, WorkerDied | EngineFault) and replica.restarts_left:
            replica.restarts_left -= 1
            self._say(f"{error}; it is started anew, and asked again what it had not finished")
            try:
                replica.group.restart().result(START_S)
                with self._changed:
                    published = self._published
                if published:
                    self._call(replica, "take over weights", "update_weights", *published)
            except BaseException as another:  # noqa: BLE001  counted as the first one was
                error = another
                continue
            self._ask_again(replica, published)
            return True
        self._give_up(replica, error)
        return False

    def _ask_again(self, replica: _Replica, published: tuple[int, Any] | None) -> None:
        with self._changed:
            for desk in replica.desks:
                if tickets := desk.take_back():
                    desk.waves.append(tickets)
            update = replica.update
            if update and published and update.version == published[0]:
                replica.update = None
            else:
                update = None
            self._changed.notify_all()
        if update:
            update.done.set_result(None)

    def _give_up(self, replica: _Replica, error: BaseException) -> None:
        """Leave a replica out for good; others do its work if it died, else all that it had to do fails."""
        with self._changed:
            self._replicas = [other for other in self._replicas if other is not replica]
            tickets = [ticket for desk in replica.desks for ticket in desk.take_back()]
            update, replica.update = replica.update, None
            if self._replicas and isinstance(error, WorkerDied | EngineFault):
                self._say(f"{error}; it is left out, {len(self._replicas)} samplers go on")
                self._deal(_by_prompt(tickets))
                tickets = []
            elif not self._replicas:
                tickets += self._take_back_all()
            self._changed.notify_all()
        if update:
            update.done.set_exception(error) if tickets or not self._replicas else update.done.set_result(None)
        _fail(tickets, error)

    def _let_go(self, replica: _Replica) -> None:
        """Without the requests of a replica that leaves; the others have them. With the lock."""
        self._replicas.remove(replica)
        self._deal(_by_prompt([ticket for desk in replica.desks for ticket in desk.take_back()]))
        if replica.update:
            replica.update.done.set_result(None)
        self._changed.notify_all()


def _by_prompt(tickets: Iterable[_Ticket]) -> list[list[_Ticket]]:
    """Those of equal prompts that stand together."""
    return [list(group) for _, group in groupby(tickets, key=lambda ticket: ticket.request.prompt_tokens.tobytes())]


def _fail(tickets: Iterable[_Ticket], error: BaseException) -> None:
    for ticket in tickets:
        ticket.future.set_exception(error)


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


def _when_all_are_done(parts: Sequence[Future[None]]) -> Future[None]:
    """A future that is done with the last of `parts`, with the first error among them."""
    whole: Future[None] = Future()
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
    if not parts:
        whole.set_exception(FaultError("no sampler is left to take over weights"))
    return whole
