"""Pools do not overlap, and what a machine or cluster lacks is named before anything starts."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import PoolConfig
from autoclave.core import HostError
from autoclave.workers import open_pools
from autoclave.workers.placement import deal_devices, visible_devices

COUNTS = st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=4)
"""GPUs of each process, by pool."""


# --- This machine --------------------------------------------------------------------------------------------------


@given(COUNTS)
def test_no_two_processes_of_any_pools_share_a_device(pools):
    free = [f"GPU-{number}" for number in range(sum(map(sum, pools.values())))]
    dealt = deal_devices(pools, free)
    assert {name: [len(own) for own in processes] for name, processes in dealt.items()} == pools
    assert sorted(device for processes in dealt.values() for own in processes for device in own) == sorted(free)


def test_missing_devices_are_named_with_who_wants_them():
    with pytest.raises(HostError) as caught:
        deal_devices({"actor": [2, 2], "sampler": [1], "cpu": [0]}, ["0", "1", "2"])
    assert str(caught.value).startswith(
        "this machine has 3 GPUs for pools that spawn processes, they need 5 (4 for pools.actor + 1 for pools.sampler)"
    )


def test_more_devices_than_this_machine_has_are_refused_before_anything_starts():
    too_many = len(visible_devices()) + 1
    with (
        pytest.raises(HostError, match=f"they need {too_many} "),
        open_pools({"main": PoolConfig(executor="spawn", devices_per_process=too_many)}, devices_per_process=0),
    ):
        pass


def test_more_processes_than_devices_are_refused_before_anything_starts():
    processes = len(visible_devices()) + 1
    with (
        pytest.raises(HostError, match=f"they need {processes} .*lower processes or devices_per_process"),
        open_pools({"main": PoolConfig(executor="spawn", processes=processes)}, devices_per_process=1),
    ):
        pass


def test_pools_are_opened_by_name_with_as_many_ranks_as_asked_for():
    asked = {"here": PoolConfig(), "there": PoolConfig(executor="spawn", processes=3)}
    with open_pools(asked, devices_per_process=0) as pools:
        assert {name: (pool.name, pool.executor.processes) for name, pool in pools.items()} == {
            "here": ("here", 1),
            "there": ("there", 3),
        }


def test_without_ray_a_ray_pool_is_refused_with_the_fix(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "autoclave.workers.ray_executor", raising=False)
    with (
        pytest.raises(HostError, match=r"pools\.far\.executor = ray: ray is not installed.*pip install .*\[ray\]"),
        open_pools({"far": PoolConfig(executor="ray")}, devices_per_process=0),
    ):
        pass


# --- A Ray cluster -------------------------------------------------------------------------------------------------


class TestRayCluster:
    """Resources are numbers to Ray: this machine passes for one of four GPUs."""

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def _cluster(ray_cluster):
        """The cluster of all tests with Ray: 4 CPUs, 4 GPUs."""

    def test_pools_have_devices_of_their_own_and_give_them_back(self):
        from autoclave.workers.ray_executor import Demand, RayExecutor

        for _ in range(2):  # the second time, what the first had is free again
            first, second = RayExecutor("first", Demand(2, 1)), RayExecutor("second", Demand(1, 2))
            devices = [device for executor in (first, second) for own in executor.devices for device in own]
            assert [len(own) for own in (*first.devices, *second.devices)] == [1, 1, 2]
            assert sorted(devices) == ["0", "1", "2", "3"]
            first.close()
            second.close()

    def test_what_the_cluster_lacks_is_named_at_once_for_all_pools_together(self):
        pools = {name: PoolConfig(executor="ray", processes=3, devices_per_process=1) for name in ("actor", "sampler")}
        with pytest.raises(HostError) as caught, open_pools(pools, devices_per_process=0):
            pass
        assert str(caught.value).startswith(
            "the Ray cluster has 4 GPUs, the pools need 6 (3 for pools.actor + 3 for pools.sampler); lower processes"
        )

    def test_processes_beyond_the_processors_of_the_cluster_are_named_too(self):
        with (
            pytest.raises(HostError, match=r"the Ray cluster has 4 CPUs, the pools need 5 \(5 for pools\.main\)"),
            open_pools({"main": PoolConfig(executor="ray", processes=5)}, devices_per_process=0),
        ):
            pass

    def test_a_process_that_fits_on_no_node_is_named(self):
        from autoclave.workers.ray_executor import Demand, check_cluster

        with pytest.raises(HostError, match=r"pools\.main: each process needs 4 GPUs, the largest node .* has 2;"):
            check_cluster({"main": Demand(1, 4)}, [{"CPU": 8, "GPU": 2}, {"CPU": 8, "GPU": 2}])

    def test_what_others_hold_is_named_after_a_while(self, monkeypatch):
        from autoclave.workers import ray_executor

        monkeypatch.setattr(ray_executor, "RESERVE_S", 1.0)
        holder = ray_executor.RayExecutor("holder", ray_executor.Demand(3, 1))
        try:
            with pytest.raises(HostError, match=r"pools\.late needs .*2 GPUs, of which 1 are free"):
                ray_executor.RayExecutor("late", ray_executor.Demand(2, 1))
        finally:
            holder.close()
