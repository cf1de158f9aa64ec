"""What tests of executors share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A Ray of our own on this machine. To Ray, resources are numbers: it has 4 CPUs and 4 GPUs."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(address="local", num_cpus=4, num_gpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
