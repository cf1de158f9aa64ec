"""The Ray cluster that is used."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import ray

from autoclave.core import HostError


def connect() -> bool:
    """Connect to the cluster that RAY_ADDRESS names or that runs on this machine; start one here if there is none.

    Returns whether this call started it.

    Raises:
        HostError: none answers at RAY_ADDRESS.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unless the user says so
    if ray.is_initialized():
        return False
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=True)
    except ConnectionError:
        if "RAY_ADDRESS" in os.environ:
            raise HostError(f"no Ray cluster answers at RAY_ADDRESS = {os.environ['RAY_ADDRESS']}") from None
        ray.init(include_dashboard=False)
        return True
    return False


@contextmanager
def own_cluster(cpus: int) -> Generator[None]:
    """Start a cluster on this machine that offers `cpus` CPUs, however many there are, and end it after the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", num_cpus=cpus, include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()
