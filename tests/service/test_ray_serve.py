"""Servers as replicas of Ray Serve on a local cluster of several nodes: as many as there is work for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from autoclave.config import RemoteJudgeConfig
from autoclave.core import Program, Verdict
from autoclave.judge import JudgeJob
from autoclave.service.client import RemoteJudge

from .conftest import DEADLINE_S, RIGHT, Postgres, ServerProcess, problem, until

pytestmark = pytest.mark.slow
NAME = "autoclave-judge"


@dataclass
class Served:
    """A cluster, and the servers on it."""

    cluster: Any
    nodes: list[Any]
    server: ServerProcess
    store: str

    def num_replicas(self) -> int:
        from ray import serve

        states = serve.status().applications[NAME].deployments[NAME].replica_states
        return sum(states.values()) if set(states) == {"RUNNING"} else -1

    @staticmethod
    def replicas() -> list[int]:
        """Their process ids."""
        named = [(process.pid, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"])]
        return [pid for pid, words in named if words.startswith(f"ray::ServeReplica:{NAME}")]


@pytest.fixture(scope="module")
def served(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed")
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("serve")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        for name in ("REPLICA", "HANDLE"):
            patch.setenv(f"RAY_SERVE_{name}_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "0.5")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
            patch.setenv("RAY_ADDRESS", cluster.address)
            ray.init(address=cluster.address, log_to_driver=False)
            store = postgres.new_database()
            server = ServerProcess(
                folder,
                "--ray",
                f"store={store}",
                "node_lease_s=3",
                "drain_s=1",
                "ray={max_replicas: 3, ongoing_requests: 2, upscale_delay_s: 1, downscale_delay_s: 4, proxies: head}",
            )
            yield Served(cluster, nodes, server, store)
            server.terminate()
            assert server.wait() == 0
            server.close()
            assert not Served.replicas()
        finally:
            ray.shutdown()
            cluster.shutdown()


def submitted(judge: RemoteJudge, label: str, count: int, *, seconds: float = 0.3) -> list[Future[Verdict]]:
    slow = f"import time; time.sleep({seconds})\n{RIGHT}"
    return [judge.submit(JudgeJob(problem(), Program(f"{slow}  # {label} {i}"), str(i))) for i in range(count)]


def judge_of(served: Served) -> RemoteJudge:
    return RemoteJudge(RemoteJudgeConfig(urls=(served.server.url,), programs_per_request=4, retries=200))


def all_accepted(futures: list[Future[Verdict]]) -> bool:
    return all(future.result(2 * DEADLINE_S).is_accepted for future in futures)


def loaded_until(condition: Callable[[], bool], judge: RemoteJudge, label: str) -> list[Future[Verdict]]:
    """Submit jobs, and more whenever few are left, until a condition is true. Returns the futures of all."""
    futures = submitted(judge, label, 100)

    def is_true_under_load() -> bool:
        if sum(not future.done() for future in futures) < 80:
            futures.extend(submitted(judge, f"{label} {len(futures)}", 40))
        return condition()

    until(is_true_under_load)
    return futures


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("port={port}",), "runs on this cluster already"),
        pytest.param(("port=1",), "not 1", marks=pytest.mark.soak),
        pytest.param(("port={port}", "judge.workers=64"), "CPUs", marks=pytest.mark.soak),
    ],
)
def test_a_second_application_does_not_disturb_the_first(served: Served, words: tuple[str, ...], reason: str):
    command = [sys.executable, "-m", "autoclave", "serve", "--ray", f"store={served.store}", "judge.workers=1"]
    command += [word.format(port=served.server.port) for word in words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == 3
    assert reason in ended.stderr
    with judge_of(served) as judge:
        assert all_accepted(submitted(judge, reason, 3))


def test_replicas_follow_the_load_and_no_job_is_lost_when_a_server_or_a_node_dies(served: Served):
    until(lambda: served.num_replicas() == 1)
    with judge_of(served) as judge:
        futures = loaded_until(lambda: served.num_replicas() == 3, judge, "load")
        os.kill(served.replicas()[0], signal.SIGKILL)
        done = sum(future.done() for future in futures)
        until(lambda: sum(future.done() for future in futures) > done + 20)
        served.cluster.remove_node(served.nodes.pop(), allow_graceful=False)
        assert all_accepted(futures)
    until(lambda: served.num_replicas() == 1)
