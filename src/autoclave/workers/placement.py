"""From the pools that settings ask for to pools that exist: each with devices of its own, or none at all."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager

from autoclave.config import PoolConfig
from autoclave.core import HostError
from autoclave.core.install import needing
from autoclave.workers.executor import Executor, InlineExecutor
from autoclave.workers.pool import ResourcePool
from autoclave.workers.spawn_executor import SpawnExecutor


@contextmanager
def open_pools(pools: Mapping[str, PoolConfig], *, devices_per_process: int) -> Generator[dict[str, ResourcePool]]:
    """The pools by name, which close with the block.

    Whether all of them can have what they ask for is found out before any process starts.

    Args:
        devices_per_process: GPUs of each process where a pool does not say.

    Raises:
        HostError: resources are missing, which are named; or Ray is not installed.
    """
    asked = {
        name: [devices_per_process if pool.devices_per_process is None else pool.devices_per_process] * pool.processes
        for name, pool in pools.items()
    }
    inline = [name for name, pool in pools.items() if pool.executor == "inline"]
    # Pools in this process all use its current device, the first one; no other pool gets it.
    free = visible_devices()[1 if inline and devices_per_process else 0 :]
    executors: dict[str, Executor] = {name: InlineExecutor() for name in inline}
    here = deal_devices({name: asked[name] for name, pool in pools.items() if pool.executor == "spawn"}, free)
    on_ray = {name: asked[name] for name, pool in pools.items() if pool.executor == "ray"}
    executors |= {name: SpawnExecutor(devices) for name, devices in here.items()}
    executors |= _ray_executors(on_ray) if on_ray else {}
    with ExitStack() as opened:
        yield {name: opened.enter_context(closing(ResourcePool(name, executors[name]))) for name in pools}


def deal_devices(pools: Mapping[str, Sequence[int]], free: Sequence[str]) -> dict[str, list[tuple[str, ...]]]:
    """The devices of each process of each pool, all different, in order.

    Args:
        pools: for each pool, how many devices each process needs.
        free: the devices that there are.

    Raises:
        HostError: there are too few; the message says who needs how many.
    """
    needed = sum(map(sum, pools.values()))
    if needed > len(free):
        parts = " + ".join(f"{sum(counts)} for pools.{name}" for name, counts in pools.items() if sum(counts))
        raise HostError(
            f"this machine has {len(free)} GPUs for pools that spawn processes, they need {needed} ({parts}); lower "
            "processes or devices_per_process, or put groups on one pool"
        )
    left = iter(free)
    return {name: [tuple(next(left) for _ in range(count)) for count in counts] for name, counts in pools.items()}


def visible_devices() -> list[str]:
    """The GPUs of this machine that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def _ray_executors(pools: Mapping[str, Sequence[int]]) -> Mapping[str, Executor]:
    with needing(f"pools.{next(iter(pools))}.executor = ray", "ray"):
        from autoclave.workers.ray_executor import Demand, RayExecutor, check_cluster, cluster_nodes
    demands = {name: Demand(len(devices), devices[0]) for name, devices in pools.items()}
    check_cluster(demands, cluster_nodes())
    with ExitStack() as opened:  # closes them if one cannot be made
        executors = {name: opened.enter_context(closing(RayExecutor(name, each))) for name, each in demands.items()}
        opened.pop_all()
    return executors
