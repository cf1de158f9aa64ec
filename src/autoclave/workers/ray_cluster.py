"""The Ray cluster that is used."""

from __future__ import annotations

import os

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
