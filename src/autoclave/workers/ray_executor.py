"""Executor `ray`: an actor for each rank of each group, in a Ray cluster.

A pool is a placement group with one bundle per rank: a CPU, and the rank's GPUs. The actors of all groups of the pool
live in the same bundles; they ask Ray for nothing more, since they take turns. Ranks are numbered by node, so that
neighbours in rank are neighbours on the network. Results stay in Ray's object store until they are read.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util import get_node_ip_address
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from autoclave.core import HostError, WorkerFault
from autoclave.workers.failures import Answer, Died, Event, Order, Returned
from autoclave.workers.ray_cluster import connect
from autoclave.workers.remote_ranks import RemoteRanks
from autoclave.workers.wire import Held, Message, pack
from autoclave.workers.worker_host import RankInfo, WorkerHost

RESERVE_S = 30.0
"""Seconds after which resources in use by other jobs count as missing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Resources that a pool requests of a cluster."""

    processes: int
    devices: int
    """GPUs of each process."""

    @property
    def bundle(self) -> dict[str, float]:
        return {"CPU": 1.0} | ({"GPU": float(self.devices)} if self.devices else {})


def check_cluster(demands: Mapping[str, Demand], nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that `nodes`, each a mapping of resources, can hold all pools side by side.

    Raises HostError: they cannot; the message names what is missing.
    """
    for name, demand in demands.items():
        for resource, amount in demand.bundle.items():
            largest = max((node.get(resource, 0.0) for node in nodes), default=0.0)
            if largest < amount:
                raise HostError(
                    f"pools.{name}: each process needs {amount:g} {resource}s, the largest node of the Ray cluster has "
                    f"{largest:g}; lower devices_per_process, or add nodes"
                )
    for resource in ("GPU", "CPU"):
        wanted = {name: demand.processes * demand.bundle.get(resource, 0.0) for name, demand in demands.items()}
        total = sum(node.get(resource, 0.0) for node in nodes)
        if sum(wanted.values()) > total:
            parts = " + ".join(f"{amount:g} for pools.{name}" for name, amount in wanted.items() if amount)
            raise HostError(
                f"the Ray cluster has {total:g} {resource}s, the pools need {sum(wanted.values()):g} ({parts}); lower "
                "processes or devices_per_process, put groups on one pool, or add nodes"
            )


def cluster_nodes() -> list[dict[str, float]]:
    connect()
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@ray.remote
def _look_around() -> tuple[str, str, tuple[str, ...]]:
    """Place of a bundle: address and name of the node, and the bundle's GPUs."""
    return get_node_ip_address(), os.uname().nodename, tuple(map(str, ray.get_gpu_ids()))


class RayExecutor:
    """A placement group for one pool."""

    def __init__(self, pool: str, demand: Demand) -> None:
        """Reserve what the pool needs. Raises HostError: it is missing, or in use by other jobs for `RESERVE_S`."""
        check_cluster({pool: demand}, cluster_nodes())
        self._pool, self._demand = pool, demand
        self._started: list[RayRanks] = []
        self._reserved: PlacementGroup = placement_group([demand.bundle] * demand.processes, strategy="PACK")
        if not self._reserved.wait(RESERVE_S):
            free = ray.available_resources()
            self.close()
            needed = {resource: amount * demand.processes for resource, amount in demand.bundle.items()}
            lacking = [
                f"{amount:g} {resource}s, of which {free.get(resource, 0.0):g} are free"
                for resource, amount in needed.items()
            ]
            raise HostError(
                f"pools.{pool} needs {' and '.join(lacking)} in the Ray cluster after {RESERVE_S:.0f} s; "
                "wait for other jobs to end, or ask for less"
            )
        self._places = self._survey()

    def _survey(self) -> "list[_Place]":
        look = [
            _look_around.options(
                num_cpus=1, num_gpus=self._demand.devices, scheduling_strategy=self._in_bundle(index)
            ).remote()
            for index in range(self._demand.processes)
        ]
        found = [_Place(*where, bundle=index) for index, where in enumerate(ray.get(look))]
        return sorted(found, key=lambda place: (place.address, place.bundle))

    def _in_bundle(self, index: int) -> PlacementGroupSchedulingStrategy:
        return PlacementGroupSchedulingStrategy(self._reserved, placement_group_bundle_index=index)

    @property
    def processes(self) -> int:
        return self._demand.processes

    @property
    def devices(self) -> list[tuple[str, ...]]:
        """The GPUs of each rank, by their names on its node."""
        return [place.devices for place in self._places]

    def start(self, group: str, make_worker: Callable[[], Any], *, process_group: bool = False) -> "RayRanks":
        actors = [
            _Actor.options(scheduling_strategy=self._in_bundle(place.bundle)).remote(
                RankInfo(rank, self.processes, place.devices)
            )
            for rank, place in enumerate(self._places)
        ]
        ranks = RayRanks(group, [place.node for place in self._places], actors)
        self._started.append(ranks)
        ranks.build(make_worker, self._places[0].address if process_group else None)
        return ranks

    def kill(self) -> None:
        for ranks in tuple(self._started):
            ranks.kill()

    def close(self) -> None:
        for ranks in self._started:
            ranks.end()
        remove_placement_group(self._reserved)


@dataclass(frozen=True, slots=True)
class _Place:
    address: str
    node: str
    devices: tuple[str, ...]
    bundle: int


@ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)
class _Actor:
    """A worker host."""

    def __init__(self, rank_info: RankInfo) -> None:
        self._host = WorkerHost(rank_info, pack)

    def process_id(self) -> int:
        return os.getpid()

    @ray.method(num_returns=2)
    def carry_out(self, order: Order, *args: Message) -> tuple[Answer, Message | None]:
        """The answer and, apart from it since it stays in the object store, the value that it speaks of if any."""
        answer = self._host.carry_out(order, args)
        return (Returned(None), answer.value) if isinstance(answer, Returned) else (answer, None)


@dataclass(frozen=True)
class _Stored(Held):
    """A result in the object store."""

    reference: ray.ObjectRef

    def fetch(self) -> Any:
        try:
            return ray.get(self.reference).fetch()
        except RayError as error:
            raise WorkerFault(f"a result was lost with the node that held it ({type(error).__name__})") from error


class RayRanks(RemoteRanks):
    """The actors of one group."""

    def __init__(self, group: str, nodes: Sequence[str], actors: Sequence[Any]) -> None:
        super().__init__(group, nodes)
        self._actors = actors
        self._sent: dict[int, tuple[ray.ObjectRef, ray.ObjectRef]] = {}  # answer and value of each rank that works

    @property
    def process_ids(self) -> list[int]:
        return ray.get([actor.process_id.remote() for actor in self._actors])

    def _packed(self, value: Any) -> ray.ObjectRef:
        if isinstance(value, _Stored):
            return value.reference
        return ray.put(pack(value.fetch() if isinstance(value, Held) else value))

    def _send(self, rank: int, order: Order, args: Sequence[ray.ObjectRef]) -> None:
        self._sent[rank] = self._actors[rank].carry_out.remote(order, *args)

    def _next_event(self, ranks: set[int], timeout_s: float | None) -> tuple[int, Event] | None:
        rank_of = {self._sent[rank][0]: rank for rank in sorted(ranks)}
        ready, _ = ray.wait(list(rank_of), num_returns=1, timeout=timeout_s, fetch_local=False)
        if not ready:
            return None
        rank = rank_of[ready[0]]
        answer, value = self._sent.pop(rank)  # kept here, the value would be in the store until the next call
        try:
            found: Answer = ray.get(answer)
            return rank, Returned(_Stored(value)) if isinstance(found, Returned) else found
        except RayActorError as error:
            return rank, Died(f"died ({_cause(error)})")

    def _kill(self) -> None:
        for actor in self._actors:
            ray.kill(actor)

    def _clear_up(self) -> None:
        for actor in self._actors:  # it is gone, and its memory free, when it says so
            with contextlib.suppress(RayActorError):
                ray.get(actor.process_id.remote())


def _cause(error: RayActorError) -> str:
    """Message of Ray about a death, without its table of names and its list of common causes."""
    lines = [line.strip() for line in str(error).splitlines()[1:] if not line.startswith("\t")]
    return " ".join(lines).partition(" Some common causes")[0][:240] or "Ray says no more"
