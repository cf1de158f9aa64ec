"""Attacks on a server: it answers for its health within a second throughout, and its memory is bounded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from autoclave.compose.service import open_store
from autoclave.service.tokens import Scope, create_token

from .conftest import RIGHT, Postgres, ServerProcess, problem, until, upload

HEALTHY_S = 1.0
UNAVAILABLE_S = 8.0


@contextlib.contextmanager
def healthy(server: ServerProcess, record_property: Callable[[str, object], None], grown_mb: float) -> Iterator[None]:
    """Ask for the health all the time, each time by a new connection; memory grows by at most `grown_mb`."""
    is_over = threading.Event()

    def worst_s() -> float:
        worst = 0.0
        while not is_over.wait(0.05):
            began = time.monotonic()
            assert httpx.get(f"{server.url}/v1/health", timeout=30.0, trust_env=False, verify=False).is_success
            worst = max(worst, time.monotonic() - began)
        return worst

    before = peak_mb(server)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(worst_s)
        try:
            yield
        finally:
            is_over.set()
        worst, grown = asking.result(), peak_mb(server) - before
    record_property("worst_health_s", round(worst, 3))
    record_property("memory_mb", (round(before), round(before + grown)))
    assert worst < HEALTHY_S
    assert grown < grown_mb


def peak_mb(server: ServerProcess) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def test_a_stalled_database_is_unavailable_within_seconds(
    start_process, postgres: Postgres, postgres_url: str, record_property
):
    text, record = create_token("", frozenset(Scope), time.time(), None)
    with contextlib.closing(open_store(postgres_url)) as store:
        store.add_token(record)
    server = start_process(f"store={postgres_url}", "require_token=true", "node_lease_s=3.0")
    headers = {"Authorization": f"Bearer {text}"}
    with httpx.Client(base_url=server.url, timeout=60.0, trust_env=False, headers=headers) as client:
        job = {"problem": upload(client, problem())[0], "source": RIGHT, "wait_s": 60}
        requests = [("GET", "/v1/server", None), ("POST", "/v1/jobs", job), ("POST", "/v1/batches", {"jobs": [job]})]

        def refused(number: int) -> float:
            method, path, body = requests[number % len(requests)]
            began = time.monotonic()
            reply = client.request(method, path, json=body)
            assert (reply.status_code, reply.json()["error"]["kind"]) == (503, "store"), (path, reply.text)
            assert int(reply.headers["Retry-After"]) >= 1
            return time.monotonic() - began

        with healthy(server, record_property, 64), postgres.stalled(), ThreadPoolExecutor(64) as pool:
            worst = max(pool.map(refused, range(192)))
        record_property("worst_refusal_s", round(worst, 1))
        assert worst < UNAVAILABLE_S
        until(lambda: client.get("/v1/ready").status_code == 200)
        until(lambda: client.get("/v1/server").status_code == 200)
        assert client.post("/v1/jobs", json=job).json()["verdict"]["status"] == "accepted"
