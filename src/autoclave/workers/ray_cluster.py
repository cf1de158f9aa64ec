"""The Ray cluster that is used."""

import os
from collections.abc import Generator
from contextlib import closing, contextmanager

import grpc
import ray
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import canonicalize_bootstrap_address  # nothing public resolves "auto"

from autoclave.core import HostError

CONNECT_S = 10.0
"""Seconds that a cluster has to answer. Ray itself tries for minutes."""


def connect() -> bool:
    """Connect to the cluster that RAY_ADDRESS names or that runs on this machine; start one here if there is none.

    Returns whether this call started it.

    Raises HostError: no cluster answers at RAY_ADDRESS within `CONNECT_S`.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unless the user says so
    if ray.is_initialized():
        return False
    named = os.environ.get("RAY_ADDRESS", "")
    try:
        if address := _answering(named or "auto"):
            ray.init(address=address, log_to_driver=True)
            return False
    except (ConnectionError, ValueError) as error:
        if named:
            raise HostError(
                f"RAY_ADDRESS = {named}: no Ray cluster answers there ({error}). Fix: start one (ray start --head) and "
                "set RAY_ADDRESS=HOST:PORT, or unset RAY_ADDRESS to start one on this machine"
            ) from None
    ray.init(address="local", include_dashboard=False)
    return True


def _answering(address: str) -> str | None:
    """Return `address`, with "auto" resolved, once a server answers there; None for "local".

    Raises ConnectionError: none answers within `CONNECT_S`, or none is known. ValueError: not an address.
    """
    if "://" in address:
        return address  # of a client protocol, which has a timeout of its own
    found = canonicalize_bootstrap_address(address)
    if found is None:
        return None
    with closing(init_grpc_channel(found)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_S)  # pyright: ignore[reportArgumentType]
        except grpc.FutureTimeoutError:
            raise ConnectionError(f"{found} did not answer within {CONNECT_S:g} s") from None
    return found


@contextmanager
def own_cluster(cpus: int) -> Generator[None]:
    """Start a cluster on this machine that offers `cpus` CPUs, however many there are, and end it after the block.

    Raises HostError: it does not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address="local", num_cpus=cpus, include_dashboard=False)
    except Exception as error:  # Ray has no other class for this
        raise HostError(f"Ray does not start on this machine ({error}). Fix: try again when it is less busy") from error
    try:
        yield
    finally:
        ray.shutdown()
