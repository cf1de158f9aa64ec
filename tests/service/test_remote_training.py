"""Training asks servers as it asks the judge of its own machine: the numbers are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.test_training_runs import STEPS, Trainings, rollouts, same_weights


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_training_with_servers_gives_bitwise_equal_weights(start_server, tmp_path: Path):
    first, second = start_server(), start_server()
    trainings = Trainings(tmp_path)
    try:
        changes = {"deterministic": True}
        assert trainings.run("local", changes=changes) == 0, trainings.log("local")
        judge = {"backend": "remote", "remote": {"urls": [first.url, second.url]}}
        assert trainings.run("remote", changes=changes | {"judge": judge}) == 0, trainings.log("remote")
    finally:
        trainings.close()
    assert same_weights(tmp_path / "local", tmp_path / "remote")
    assert rollouts(tmp_path / "local") == rollouts(tmp_path / "remote")
    texts = [server.client.get("/v1/metrics").text for server in (first, second)]
    counts = [line for text in texts for line in text.splitlines() if line.startswith("autoclave_verdicts_total{")]
    assert len(counts) >= 2  # both had programs to judge
    assert len(rollouts(tmp_path / "remote")) >= STEPS
