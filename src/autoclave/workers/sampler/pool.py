"""All engines of a run as one `Sampler`: it distributes requests, which survive the death of an engine.

A thread for each replica (a worker group) calls `step` of its engines for short times; between two such calls they get
new requests and weights. Requests that a replica has not finished when it dies are submitted again after its restart,
with the current weights, so every request ends exactly once: in a completion or in an error. An engine that loses a
request, or answers one that it does not have, is treated as dead.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as CallTimeout
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from autoclave.core import Completion, EngineFault, FaultError, WorkerDied
from autoclave.rollout import Request
from autoclave.workers.group import WorkerGroup
from autoclave.workers.sampler.replica import (
    EngineQueue,
    PendingRequest,
    Replica,
    Update,
    WeightSource,
    by_prompt,
    fail,
    refused,
    when_all_are_done,
)
from autoclave.workers.sampler.worker import Batches, SamplerWorker, StepOutput

SLICE_S = 0.05
"""Seconds of one `step` of the engines, after which they return completions and take new requests."""

LONGEST_STEP_S = 1.0
"""Most seconds that a step counts as, in which an engine sampled nothing: it may have waited for its devices."""

START_S = 3600.0
"""Seconds after which a replica that has not restarted is given up."""

NO_SAMPLER = "no sampler is left: all of them died, or have left"


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
            in_flight: most requests that an engine has at a time; others wait here for the first free engine. None
                distributes requests at once, in an order that does not depend on time.
            restarts: how often the processes of a replica may be restarted.
            timeout_s: seconds without an answer after which the processes of a replica are ended, not counting the time
                of other groups on its devices.
            say: called with a line about each replica that died.
        """
        self._in_flight, self._restarts, self._timeout_s, self._say = in_flight, restarts, timeout_s, say
        self._changed = threading.Condition()
        self._replicas: list[Replica] = []
        self._given_up: list[WorkerGroup[SamplerWorker]] = []
        self._queue: deque[list[PendingRequest]] = deque()
        self._numbers = count()
        self._next_engine = 0
        self._published: tuple[int, WeightSource] | None = None
        self._epoch = 0  # results of an earlier epoch are dropped
        self._is_closed = self._is_restarting = False
        for group in groups:
            self.attach(group)

    def submit(self, requests: Sequence[Request]) -> list[Future[Completion]]:
        """A future for each of `requests`, one batch; samples of one prompt that stand together stay on one engine.

        Raises RuntimeError: it is closed. WorkerDied: no replica is left.
        """
        with self._changed:
            self._require_open()
            if not self._replicas:
                raise WorkerDied(NO_SAMPLER)
            pending = self._pending_requests(requests)
            self._assign(by_prompt(pending))
            self._changed.notify_all()
        return [each.future for each in pending]

    def submit_to_each(self, requests: Sequence[Request]) -> dict[str, list[Future[Completion]]]:
        """As `submit`, to every engine: futures for all of `requests`, by the name of its group and its rank.

        They do not wait for room. Another engine takes over the requests of one that dies.
        """
        futures: dict[str, list[Future[Completion]]] = {}
        with self._changed:
            self._require_open()
            for replica in self._replicas:
                for rank, queue in enumerate(replica.queues):
                    queue.batches.append(self._pending_requests(requests))
                    futures[f"{replica.group.name}/{rank}"] = [each.future for each in queue.batches[-1]]
            self._changed.notify_all()
        return futures

    def _pending_requests(self, requests: Sequence[Request]) -> list[PendingRequest]:
        pending = [PendingRequest(next(self._numbers), request, Future()) for request in requests]
        for each in pending:
            each.future.set_running_or_notify_cancel()
        return pending

    def update_weights(self, version: int, weights: WeightSource, *, drains: bool = False) -> Future[None]:
        """Have all engines sample with the weights that `weights` delivers, called `version`, from now on.

        Requests in flight continue with them; with `drains`, an engine first finishes its requests. The future fails,
        with an error that names version and replica, if a replica fails over them and no other replaces it.

        Raises ValueError: the version is not newer than the last one. RuntimeError: a replica does not have the last
        one yet, or the pool is closed.
        """
        whole: Future[None] = Future()
        with self._changed:
            self._require_open()
            if self._published and version <= self._published[0]:
                raise ValueError(f"weights of version {version} come after those of version {self._published[0]}")
            if slow := [replica.group.name for replica in self._replicas if replica.update]:
                raise RuntimeError(f"weights of version {version}: {slow[0]} has not taken over the last ones yet")
            if not self._replicas:
                raise WorkerDied(f"weights of version {version}: {NO_SAMPLER}")
            self._published = (version, weights)
            updates = [Update(version, drains) for _ in self._replicas]
            for replica, update in zip(self._replicas, updates, strict=True):
                replica.update = update
            self._changed.notify_all()
        when_all_are_done([update.done for update in updates], whole)
        return whole

    @property
    def groups(self) -> list[WorkerGroup[SamplerWorker]]:
        """The groups that sample, in the order in which they were attached."""
        with self._changed:
            return [replica.group for replica in self._replicas]

    def attach(self, group: WorkerGroup[SamplerWorker]) -> None:
        """Sample on this group too. It gets the current weights before its first request.

        Raises RuntimeError: it is closed.
        """
        replica = Replica(group, [EngineQueue() for _ in group.nodes], self._restarts)
        with self._changed:
            self._require_open()
            if self._published:
                replica.update = Update(self._published[0], drains=False)
            self._replicas.append(replica)
        threading.Thread(target=self._serve, args=(replica,), name=f"sampler-{group.name}", daemon=True).start()

    def detach(self, group: WorkerGroup[SamplerWorker]) -> None:
        """Stop sampling on this group; the others get its unfinished requests. Its workers stay.

        Raises ValueError: it does not sample here, or no other group is left.
        """
        with self._changed:
            leaving = [replica for replica in self._replicas if replica.group is group]
            if not leaving:
                raise ValueError(f"{group.name} is not a sampler here, or was removed after it died")
            if all(replica.is_leaving for replica in self._replicas if replica is not leaving[0]):
                raise ValueError(f"{group.name} is the only sampler; attach another one first")
            leaving[0].is_leaving = True
            self._changed.notify_all()

    def state(self) -> str:
        with self._changed:
            queued = sum(map(len, self._queue))
            return "\n".join(
                [f"{queued} requests wait for a sampler", *(replica.state() for replica in self._replicas)]
            )

    def restart(self) -> None:
        """Restart all workers with the models that they started with, also those of replicas that were given up.

        Requests and weights in flight are dropped.

        Raises FaultError: a replica does not become idle. Exception: what making a worker raised.
        """
        with self._changed:
            self._epoch += 1
            self._is_restarting = True
            given_up = tuple(self._given_up)
            self._published, self._next_engine = None, 0
            pending, updates = self._take_back_all(), self._take_back_updates()
        self._end(pending, updates, RuntimeError("the samplers were restarted"))
        try:
            restarts = [group.restart() for group in [*self._at_rest(), *given_up]]
            for restarted in restarts:
                restarted.result(START_S)
        finally:
            with self._changed:
                self._is_restarting = False
                self._changed.notify_all()
        for group in given_up:
            self._given_up.remove(group)
            self.attach(group)

    def _at_rest(self) -> list[WorkerGroup[SamplerWorker]]:
        with self._changed:
            if not self._changed.wait_for(lambda: not any(r.doing for r in self._replicas), START_S):
                raise FaultError(f"the samplers cannot be restarted:\n{self.state()}")
            return self.groups

    def close(self) -> None:
        """End all threads; requests and updates that are not done end in an error."""
        with self._changed:
            self._is_closed = True
            pending, updates = self._take_back_all(), self._take_back_updates()
            self._changed.notify_all()
        self._end(pending, updates, RuntimeError("sampling was cancelled: the samplers are closed"))

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the samplers are closed")

    # --- Dealing; with the lock

    def _assign(self, groups: list[list[PendingRequest]]) -> None:
        if self._in_flight is not None:
            self._queue += groups
            return
        queues = [queue for replica in self._replicas for queue in replica.queues]
        for number, queue in enumerate(queues):
            # Each engine in turn gets the next group: of equal batches, the same groups are always together.
            batch = [t for group in groups[(number - self._next_engine) % len(queues) :: len(queues)] for t in group]
            if batch:
                queue.batches.append(batch)
        self._next_engine = (self._next_engine + len(groups)) % len(queues)

    def _feed(self, replica: Replica) -> None:
        """Give the engines of a replica as many waiting requests as they have room for."""
        limit = self._in_flight or 0
        if replica.update and replica.update.drains:
            return
        for queue in sorted(replica.queues, key=lambda queue: queue.outstanding):
            while self._queue and (not queue.outstanding or queue.outstanding + len(self._queue[0]) <= limit):
                queue.batches.append(self._queue.popleft())

    def _take_back_all(self) -> list[PendingRequest]:
        queued, self._queue = self._queue, deque()
        unfinished = [each for replica in self._replicas for each in replica.take_unfinished()]
        return [each for group in queued for each in group] + unfinished

    def _take_back_updates(self) -> list[Update]:
        updates = [replica.update for replica in self._replicas if replica.update]
        for replica in self._replicas:
            replica.update = None
        return updates

    def _end(self, pending: Sequence[PendingRequest], updates: Sequence[Update], error: BaseException) -> None:
        fail(pending, error)
        for update in updates:
            update.done.set_exception(error)

    # --- The thread of a replica

    def _serve(self, replica: Replica) -> None:
        try:
            while self._take_turn(replica):
                pass
        except BaseException as error:  # noqa: BLE001  a bug here must not leave requests without an end
            self._give_up(replica, error, is_death=False)

    def _take_turn(self, replica: Replica) -> bool:
        """Wait for the next task of a replica and do it. Return whether there may be more."""
        with self._changed:
            replica.doing = ""
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._has_to_do(replica))
            if self._is_closed:
                return False
            epoch, update = self._epoch, self._due_update(replica)
            is_leaving, batches = replica.is_leaving, list[Batches]()
            if not is_leaving and not update:
                if self._in_flight is not None:
                    self._feed(replica)
                batches = [queue.take_batches() for queue in replica.queues]
            replica.doing = "leaves" if is_leaving else "takes over weights" if update else "samples"
        if is_leaving:
            self._let_go(replica)
            return False
        try:
            if update:
                self._updated(replica, update, self._delivered(replica))
            else:
                began = time.monotonic()
                outputs = self._call(replica, "sample", "advance", batches, SLICE_S)
                self._hand_over(replica, outputs, epoch, min(time.monotonic() - began, LONGEST_STEP_S))
        except BaseException as error:  # noqa: BLE001  every request ends in a completion or an error
            return self._recover(replica, error, epoch)
        return True

    def _has_to_do(self, replica: Replica) -> bool:
        if self._is_closed:
            return True
        if self._is_restarting:
            return False
        is_due = replica.is_leaving or self._due_update(replica)
        return bool(is_due or not replica.is_idle or (self._queue and not replica.update))

    def _due_update(self, replica: Replica) -> Update | None:
        update = replica.update
        return update if update and not (update.drains and replica.runs) else None

    def _call(self, replica: Replica, what: str, method: str, *args: Any) -> Any:
        """Call the workers of a replica, which are ended if they do not answer."""
        call = getattr(replica.group, method)(*args)
        return replica.group.wait_for(call, self._timeout_s, f"was to {what}", "sampler.timeout_s")

    def _delivered(self, replica: Replica) -> int | None:
        """Deliver the current weights to a replica. Return their version, None for the initial weights."""
        with self._changed:
            published = self._published
        if published is None:
            return None
        return published[1].deliver(replica.group, partial(self._call, replica, "take over weights"))

    def _updated(self, replica: Replica, update: Update, version: int | None) -> None:
        with self._changed:
            is_due = replica.update is update
            if is_due:  # before the future is set: a caller that waits for it may publish again at once
                replica.update, replica.version = None, version
        if is_due:
            update.done.set_result(None)

    def _hand_over(self, replica: Replica, answers: list[StepOutput], epoch: int, step_s: float) -> None:
        with self._changed:
            if self._epoch != epoch or self._is_closed:
                return  # all requests were taken back meanwhile
            for rank, (queue, output) in enumerate(zip(replica.queues, answers, strict=True)):
                engine = f"engine {rank} of worker group {replica.group.name!r}"
                queue.check(output, engine, replica.version or 0)
                queue.require_progress(output.stats, engine, step_s, self._timeout_s)
            outputs = zip(replica.queues, answers, strict=True)
            finished = [done for queue, output in outputs for done in queue.take_done(output)]
            self._changed.notify_all()
        for each, completion in finished:
            each.future.set_result(replace(completion, sampled_by=replica.group.name))

    def _recover(self, replica: Replica, error: BaseException, epoch: int) -> bool:
        """Restart a replica that failed, with all its requests. Return whether it continues."""
        if isinstance(error, CancelledError):
            error = RuntimeError("sampling was cancelled: the pool of the samplers is closed")
        is_death = isinstance(error, WorkerDied | EngineFault)
        while is_death and replica.restarts_left and self._epoch == epoch and not self._is_closed:
            replica.restarts_left -= 1
            self._say(f"{error}; it is restarted and gets its unfinished requests again")
            replica.doing = "restarts"
            try:
                version = self._revived(replica)
            except BaseException as another:  # noqa: BLE001  counted as the first one was
                error = another
                continue
            self._ask_again(replica, version)
            return True
        if self._epoch != epoch and not self._is_closed:
            return True  # another thread restarts all replicas
        self._give_up(replica, error, is_death=is_death)
        return False

    def _revived(self, replica: Replica) -> int | None:
        """Restart the workers of a replica, and deliver the current weights; see `_delivered`."""
        name = replica.group.name
        try:
            replica.group.restart().result(START_S)
        except CallTimeout:
            how = f"did not restart within {START_S:.0f} s"
            raise WorkerDied.of(name, 0, replica.group.nodes[0], how) from None
        return self._delivered(replica)

    def _ask_again(self, replica: Replica, version: int | None) -> None:
        with self._changed:
            for queue in replica.queues:
                if pending := queue.take_unfinished():
                    queue.batches.append(pending)
            replica.version = version
            update = replica.update
            is_due = update is not None and version is not None and update.version <= version
            if is_due:
                replica.update = None
            self._changed.notify_all()
        if update and is_due:
            update.done.set_result(None)

    def _give_up(self, replica: Replica, error: BaseException, *, is_death: bool) -> None:
        """Remove a replica; if it died, others get its requests, else they fail."""
        with self._changed:
            self._given_up.append(replica.group)
            pending, update = self._leave_out(replica, passes_on=is_death)
            is_closed, left = self._is_closed, len(self._replicas)
        if not is_closed:
            self._say(f"{str(error) or repr(error)}; it is removed, {left} samplers remain")
        if update and left and is_death:
            update.done.set_result(None)
        elif update:
            error = refused(error, update.version, replica.group.name)
            update.done.set_exception(error)
        fail(pending, error)

    def _let_go(self, replica: Replica) -> None:
        """End a replica that leaves; the others get its requests, which fail if all others died."""
        with self._changed:
            pending, update = self._leave_out(replica, passes_on=True)
            published = self._published
        if update:
            update.done.set_result(None)
        fail(pending, WorkerDied(NO_SAMPLER))
        if published and replica.version is not None:
            with suppress(Exception):  # a group that has died holds no weights
                published[1].release(replica.group, partial(self._call, replica, "let go of weights"))

    def _leave_out(self, replica: Replica, *, passes_on: bool) -> tuple[list[PendingRequest], Update | None]:
        """Remove a replica, with the lock; with `passes_on`, the others get its requests.

        Returns:
            The requests that no sampler has now, and the pending update of the replica.
        """
        self._replicas = [other for other in self._replicas if other is not replica]
        pending = replica.take_unfinished()
        update, replica.update = replica.update, None
        if self._replicas and passes_on:
            self._assign(by_prompt(pending))
            pending = []
        elif not self._replicas:
            pending += self._take_back_all()
        self._changed.notify_all()
        return pending, update
