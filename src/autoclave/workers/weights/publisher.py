"""The driver's side of a publish: what is written, who reads it, and by which route.

The trainer writes its weights once, and each sampler takes them over when it can. No weight passes through the driver.
Versions only grow. A version is published as soon as it is written: a sampler that is attached or restarted later gets
that one, without later updates of the trainer.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from autoclave.core import FaultError
from autoclave.workers.group import WorkerGroup
from autoclave.workers.weights.broadcast import Rendezvous
from autoclave.workers.weights.buffer_descriptor import AS_TRAINED, BufferDescriptor, Form
from autoclave.workers.weights.control import NUM_READERS
from autoclave.workers.weights.routes import MAPPED, Endpoint, Route, choose_routes, is_on_device, route_to_latecomer

SamplerGroup = WorkerGroup[Any]
"""A group whose worker is a `ReceivesWeights`."""
Rank = tuple[str, int]
"""Name of a group, and rank in it."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """A group that reads, and the route to each of its ranks."""

    group: SamplerGroup
    starts: int
    """Of its workers, when they were told how weights come in."""
    routes: Sequence[Route]
    needs_frozen: bool
    """Its engines have no place for adapters: these are added to frozen weights that they are sent once."""

    @property
    def is_ready(self) -> bool:
        return self.group.is_alive and self.group.starts == self.starts

    def ranks_by(self, route: Route) -> list[Rank]:
        return [(self.group.name, rank) for rank, found in enumerate(self.routes) if found is route]


class Publisher:
    """Publishes the weights of `trainer`, a group whose worker is a `SendsWeights`, to groups of samplers.

    A `WeightSource` for a pool of samplers: `begin` or `write`, and then `deliver` to each group, from any thread.
    """

    def __init__(
        self,
        trainer: WorkerGroup[Any],
        form: Form = AS_TRAINED,
        *,
        deadline_s: float,
        may_alias: bool = False,
        verifies: bool = True,
    ) -> None:
        """Nothing is done before `begin`.

        Args:
            form: in which form they are published.
            deadline_s: how long an answer to `begin` or `write` is waited for, in seconds.
            may_alias: whether samplers are idle whenever the trainer learns or loads a checkpoint; only then may they
                compute with its own tensors.
            verifies: whether the digest of each weight inside each engine is compared with that of the trainer's.
        """
        self._trainer, self._form, self._deadline_s, self._may_alias = trainer, form, deadline_s, may_alias
        self._readers: dict[str, _Reader] = {}
        self._numbers: dict[Rank, int] = {}  # of seats; a restarted worker takes its former seat
        self._descriptor: BufferDescriptor | None = None
        self._memory_routes: frozenset[Route] = frozenset()  # those that the trainer's memory was made for
        self._frozen: Future[Any] | None = None
        self._sent: dict[Route, Future[Any]] = {}  # what samplers are handed of the current version
        self._broadcast: Future[Any] | None = None  # of the current version
        self._rendezvous = 0
        self._members: frozenset[Rank] = frozenset()  # of the broadcast group
        self._version: int | None = None
        self._verifies = verifies
        self._digests: Any = None  # of the current version
        self._unread: dict[str, int] = {}  # by group, weights that its engines could not report last
        self._turn = threading.RLock()

    @property
    def version(self) -> int | None:
        """Version written last; None before `begin`."""
        return self._version

    @property
    def unread(self) -> int:
        """Most weights that an engine could not report, so that they were not compared."""
        return max(self._unread.values(), default=0)

    @property
    def routes(self) -> dict[str, list[Route]]:
        """The routes to the ranks of each group, by its name."""
        return {name: list(reader.routes) for name, reader in self._readers.items()}

    def begin(self, version: int, samplers: Sequence[SamplerGroup]) -> None:
        """Write the trainer's weights as `version`, any number, for these groups, by routes that are chosen now.

        At the start of a run, and again whenever the trainer was restarted.

        Raises FaultError: a worker does not answer within the deadline; the message names it. HostError: there is no
        memory for the weights, or it cannot be reached by the route that was chosen.
        """
        with self._turn:
            self._readers, self._descriptor, self._version, self._members = {}, None, None, frozenset()
            found: dict[str, list[Endpoint]] = self._answers(
                {group.name: group.weights_endpoint() for group in samplers}
            )
            self._endpoint, is_own = self._answer(self._trainer.survey_weights(self._form))
            endpoints: dict[Rank, Endpoint] = {
                (name, rank): endpoint for name in found for rank, endpoint in enumerate(found[name])
            }
            sharing = {name for name in found for group in samplers if group.name == name and self._shares_pool(group)}
            routes = choose_routes(
                self._endpoint,
                endpoints,
                sharing_pool={rank for rank in endpoints if rank[0] in sharing},
                may_alias=self._may_alias and is_own,
            )
            self._make_memory(frozenset(routes.values()))
            for group in samplers:
                of_ranks = [routes[group.name, rank] for rank in range(len(found[group.name]))]
                self._readers[group.name] = _Reader(group, group.starts, of_ranks, self._need_frozen(found[group.name]))
            readers = self._readers.items()
            self._answers({name: reader.group.open_receiver(*self._receivers(reader)) for name, reader in readers})
            self._write(version)

    def write(self, version: int) -> None:
        """Write the trainer's weights as they are now; `deliver` gives them to samplers from then on.

        Raises:
            ValueError: `version` is not above the last one.
            FaultError: the trainer does not answer, or a sampler still uses the memory of the version before the last,
                after the deadline; the message names who.
            WorkerDied: the trainer died; a note says which version is out.
        """
        with self._turn:
            if version <= self._current():
                raise ValueError(
                    f"publish of version {version}: version {self._version} is out already, and versions only grow; "
                    "a run that goes back must `begin` again"
                )
            self._write(version)

    def deliver(self, group: SamplerGroup, call: Callable[..., Any]) -> int:
        """Load the current version in `group`, which may be known, new, or restarted; see `WeightSource`.

        Raises FaultError: it can be reached only if all `begin` again, or an engine computes with other weights.
        Exception: what its workers raised; or the trainer, where it could not send.
        """
        reader = self._readers.get(group.name)
        if reader is None or reader.group is not group or reader.starts != group.starts:
            reader = self._welcomed(group, call)
        with self._turn:
            version, sent, published = self._current(), self._sent_to(reader), self._digests
        if sent is not None:
            self._answer(sent)  # or the sampler would wait for it, and not sample
        try:
            self._unread[group.name] = max(call("take_weights", version, sent, published))
        except Exception as error:
            if (sending := self._broadcast) and sending.done() and (cause := sending.exception()):
                raise cause from error
            raise
        return version

    def release(self, group: SamplerGroup, call: Callable[..., Any]) -> None:
        """Publish to this group no longer: what it uses may be written over; see `WeightSource`."""
        with self._turn:
            self._readers.pop(group.name, None)
        call("close_receiver")

    def _make_memory(self, routes: frozenset[Route]) -> None:
        """Have the trainer make what is read by these routes."""
        self._memory_routes, self._sent = routes, {}
        if routes - {Route.ALIAS}:
            num_slots = 2 if routes & MAPPED else 1  # the other routes copy what they read
            self._descriptor = self._answer(self._trainer.open_weights(self._form, num_slots, is_on_device(routes)))
        self._frozen = None

    def _write(self, version: int) -> None:
        try:
            if self._descriptor is not None:
                patience_s = 0.8 * self._deadline_s  # who is waited for is known there, so it must give up first
                self._answer(self._trainer.write_weights(version, patience_s))
            if self._verifies:
                self._digests = self._answer(self._trainer.weight_digests(self._form))
        except Exception as error:
            former = "no version" if self._version is None else f"version {self._version}"
            error.add_note(f"Version {version} was not written whole; samplers have {former} as before")
            raise
        self._version, self._sent, self._broadcast = version, {}, None
        if members := [
            rank for each in self._readers.values() if each.is_ready for rank in each.ranks_by(Route.BROADCAST)
        ]:
            self._join(members)
            self._broadcast = self._trainer.broadcast_weights()  # returns when all members have come for it

    def _join(self, members: Sequence[Rank]) -> None:
        """Let the members of a broadcast meet, unless they have."""
        if self._members == frozenset(members) or self._descriptor is None:
            return
        address, port = self._answer(self._trainer.open_rendezvous())
        self._rendezvous += 1
        name = f"{self._descriptor.address.token}/{self._rendezvous}"  # a trainer may have had other publishers
        rendezvous = Rendezvous(address, port, name, len(members) + 1, self._deadline_s)
        numbers = {rank: number for number, rank in enumerate(sorted(members), start=1)}
        calls: dict[str, Future[Any]] = {"trainer": self._trainer.join(rendezvous)}
        for each in [reader for reader in self._readers.values() if any(rank in numbers for rank in _ranks(reader))]:
            calls[each.group.name] = each.group.join([numbers.get(rank) for rank in _ranks(each)], rendezvous)
        self._members = frozenset()
        self._answers(calls)
        self._members = frozenset(members)

    def _welcomed(self, group: SamplerGroup, call: Callable[..., Any]) -> _Reader:
        """Set up a group that is attached or restarted later to read weights from the existing memory."""
        starts, endpoints = group.starts, call("weights_endpoint")
        with self._turn:
            routes = [self._route_beside(group, endpoint) for endpoint in endpoints]
            reader = _Reader(group, starts, routes, self._need_frozen(endpoints))
            self._members -= {*_ranks(reader)}
            receivers = self._receivers(reader)
        call("open_receiver", *receivers)
        with self._turn:
            self._readers[group.name] = reader
        return reader

    def _route_beside(self, group: SamplerGroup, endpoint: Endpoint) -> Route:
        if self._descriptor is None:
            if endpoint == self._endpoint and self._version is not None:
                return Route.ALIAS
            raise FaultError(
                f"sampler {group.name!r}: the others compute with the tensors of the trainer itself, and it is in "
                "another process; all must `begin` again"
            )
        return route_to_latecomer(
            self._endpoint,
            endpoint,
            shares_pool=self._shares_pool(group),
            is_on_device=is_on_device(self._memory_routes),
            is_mapped=bool(self._memory_routes & MAPPED),
        )

    def _receivers(self, reader: _Reader) -> tuple[Any, ...]:
        """The arguments of `open_receiver` for a group."""
        endpoints: list[tuple[Route, int]] = []
        for rank, route in zip(_ranks(reader), reader.routes, strict=True):
            number = self._numbers.setdefault(rank, len(self._numbers))
            if number >= NUM_READERS:
                raise FaultError(f"sampler {rank} is the {number + 1}th; there is room for {NUM_READERS}")
            endpoints.append((route, number))
        if reader.needs_frozen and self._frozen is None and self._descriptor:
            self._frozen = self._trainer.frozen_weights(self._form)
        return endpoints, self._descriptor, reader.group.name, self._frozen if reader.needs_frozen else None

    def _need_frozen(self, endpoints: Sequence[Endpoint]) -> bool:
        return self._form.adapter_only and not all(endpoint.holds_adapter for endpoint in endpoints)

    def _sent_to(self, reader: _Reader) -> Future[Any] | None:
        """Weights of the current version for a group, as the trainer holds them; None where it reads it itself."""
        is_late = not self._members.issuperset(
            reader.ranks_by(Route.BROADCAST)
        )  # it meets the others at the next write
        if Route.BUCKETS in reader.routes or is_late:
            return self._made(Route.BUCKETS, self._trainer.packed_weights)
        if Route.ALIAS in reader.routes:
            return self._made(Route.ALIAS, self._trainer.own_weights)
        return None

    def _made(self, route: Route, make: Callable[[], Future[Any]]) -> Future[Any]:
        if route not in self._sent:
            self._sent[route] = make()
        return self._sent[route]

    def _shares_pool(self, group: SamplerGroup) -> bool:
        return group.pool is self._trainer.pool

    def _current(self) -> int:
        if self._version is None:
            raise RuntimeError("nothing is published yet: `begin` comes first")
        return self._version

    def _answer(self, call: Future[Any]) -> Any:
        return self._answers({"trainer": call})["trainer"]

    def _answers(self, calls: Mapping[str, Future[Any]]) -> dict[str, Any]:
        """Return the result of each call, once all have ended; the first failure is raised when all have ended."""
        _, late = wait(calls.values(), timeout=self._deadline_s)
        for call in calls.values():
            if call not in late and (error := call.exception()):
                raise error
        if late:
            raise FaultError(
                f"publishing weights: no answer from {', '.join(name for name in calls if calls[name] in late)} "
                f"after {self._deadline_s:g} s (publish.timeout_s)"
            )
        return {name: call.result() for name, call in calls.items()}


def _ranks(reader: _Reader) -> list[Rank]:
    return [(reader.group.name, rank) for rank in range(len(reader.routes))]
