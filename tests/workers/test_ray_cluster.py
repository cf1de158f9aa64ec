"""A Ray cluster that does not answer ends the wait for it, and the message has the fix."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoclave.core import HostError

ray_cluster = pytest.importorskip("autoclave.workers.ray_cluster", reason="Ray is not installed")
SOON_S = 0.5


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "CONNECT_S", SOON_S)


@pytest.fixture
def silent_address() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed_address() -> str:
    with socket.create_server(("", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["silent_address", "closed_address", "no-such-host:6379", "no address"])
def test_an_address_that_does_not_answer_fails_in_time_and_says_the_fix(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    address = request.getfixturevalue(kind) if kind.endswith("_address") else kind
    monkeypatch.setenv("RAY_ADDRESS", address)
    began = time.monotonic()
    with pytest.raises(HostError, match=f"^RAY_ADDRESS = {address}: .*Fix: start one.*, or unset RAY_ADDRESS"):
        ray_cluster.connect()
    assert time.monotonic() - began < 9  # the usual wait is 10


def test_a_recorded_cluster_that_is_dead_is_replaced_by_one_of_our_own(
    closed_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(closed_address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.services.find_gcs_addresses", set)  # of other users of this machine
    started: list[dict[str, object]] = []
    monkeypatch.setattr("ray.init", lambda **options: started.append(options))
    assert ray_cluster.connect() is True
    assert started == [{"address": "local", "include_dashboard": False}]
