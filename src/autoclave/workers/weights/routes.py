"""By which way weights get from the trainer to each sampler. Pure: decided from where the two are."""

import os
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import torch

from autoclave.workers.weights.memory import this_host

K = TypeVar("K", bound=Hashable)


class Route(StrEnum):
    """A way from trainer to sampler."""

    ALIAS = "alias"
    """The sampler uses the trainer's own tensors: same process, plain weights, and no sampling while it learns."""
    MEMORY = "memory"
    """The trainer writes into shared memory of the host, which the sampler maps; same host."""
    DEVICE = "device"
    """The same in the memory of a GPU that both use, by CUDA IPC between processes."""
    BROADCAST = "broadcast"
    """Flat buckets by NCCL from the trainer's rank 0 to the GPUs of samplers."""
    BUCKETS = "buckets"
    """Flat numpy arrays that are held where they were made, and fetched by the sampler: from another host."""


MAPPED = {Route.MEMORY, Route.DEVICE}
"""Routes by which samplers compute with the memory that the trainer writes."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint of a rank: host, process, and the GPU that it computes on, which is empty for the CPU."""

    host: str
    process: int
    gpu: str
    holds_adapter: bool = False
    """Of a sampler: its engine has the frozen weights, and computes with adapters beside them."""

    @staticmethod
    def of(device: torch.device | None) -> "Endpoint":
        """That of this process, which computes on `device`, or the CPU."""
        gpu = str(torch.cuda.get_device_properties(device).uuid) if device and device.type == "cuda" else ""
        return Endpoint(this_host(), os.getpid(), gpu)


def choose_routes(
    trainer: Endpoint, samplers: Mapping[K, Endpoint], *, sharing_pool: Collection[K], may_alias: bool
) -> dict[K, Route]:
    """The route to each sampler, by what it is called.

    The trainer writes one memory, on its GPU or on its host, so routes that read the one exclude those that read the
    other: where any sampler needs the host's, all have it.

    Args:
        trainer: rank 0.
        samplers: where each is.
        sharing_pool: samplers on the trainer's pool. Calls of a pool are serial, so these cannot meet in a broadcast.
        may_alias: whether the weights of the trainer are plain, held as they are published, and at rest while samplers
            sample.
    """
    if may_alias and samplers and all(endpoint == trainer for endpoint in samplers.values()):
        return dict.fromkeys(samplers, Route.ALIAS)
    on_device = {name: _route_on_device(trainer, endpoint, name in sharing_pool) for name, endpoint in samplers.items()}
    found = {name: route for name, route in on_device.items() if route}
    if len(found) == len(samplers):
        return found
    return {name: _route_on_host(trainer, endpoint) for name, endpoint in samplers.items()}


def _route_on_device(trainer: Endpoint, sampler: Endpoint, shares_pool: bool) -> Route | None:
    if not trainer.gpu or not sampler.gpu:
        return None
    if trainer.gpu == sampler.gpu and trainer.host == sampler.host:
        return Route.DEVICE
    return None if shares_pool else Route.BROADCAST


def route_to_latecomer(
    trainer: Endpoint, sampler: Endpoint, *, shares_pool: bool, is_on_device: bool, is_mapped: bool
) -> Route:
    """The route to a sampler that is attached or restarted when the trainer's memory exists.

    Args:
        trainer: rank 0.
        sampler: where it is.
        shares_pool: whether it is on the trainer's pool.
        is_on_device: whether the memory is that of the trainer's GPU.
        is_mapped: whether it has room for a version that samplers compute with, beside the one that is written.
    """
    near = _route_on_device(trainer, sampler, shares_pool) if is_on_device else _route_on_host(trainer, sampler)
    return near if near and (is_mapped or near not in MAPPED) else Route.BUCKETS


def _route_on_host(trainer: Endpoint, sampler: Endpoint) -> Route:
    return Route.MEMORY if sampler.host == trainer.host else Route.BUCKETS


def is_on_device(routes: Collection[Route]) -> bool:
    """Return whether the memory that these routes read is the trainer's GPU's."""
    return bool(routes) and set(routes) <= {Route.DEVICE, Route.BROADCAST}
