"""A tiny model behind `transformers serve`, a real server compatible with OpenAI, through a benchmark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from autoclave.compose.benchmark import definition_of, evaluate_benchmark
from autoclave.config import BenchmarkConfig, Override, load
from autoclave.core import FaultError, InputError
from autoclave.models import save_model
from autoclave_testing.engines import build_policy
from tests.ports import reserved_port

pytest.importorskip("openai", reason="transformers serve needs the package openai")
pytestmark = pytest.mark.timeout(360)

ROW = {
    "task_id": 11,
    "text": "Add two numbers.",
    "code": "def add(a, b):\n    return a + b",
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3"],
    "challenge_test_list": [],
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    save_model(build_policy(), folder)
    return folder


@pytest.fixture(scope="module")
def address(policy: Path) -> Iterator[str]:
    seat = reserved_port()
    port = seat.getsockname()[1]
    command = [Path(sys.executable).with_name("transformers"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [*map(str, command), "--device", "cpu"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 240
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=5, trust_env=False)
                break
            except httpx.TransportError:
                assert server.poll() is None, "transformers serve ended"
                assert time.monotonic() < deadline, "transformers serve does not come up"
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(60)
        seat.close()


def evaluated(address: str, tmp_path: Path, **settings: object):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(ROW))
    changes = {"source.path": str(path), "source.hub": "", "max_new_tokens": 8, "endpoint.retries": 1}
    changes |= {"lazy_programs": False, **settings}
    overrides = [Override(place, value, "test") for place, value in changes.items()]
    config = load(BenchmarkConfig, definition_of("mbpp"), overrides).config
    return evaluate_benchmark(config, address)


def test_a_served_model_goes_through_a_benchmark(address, policy, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    settings = {"endpoint.model": str(policy), "samples": 3, "temperature": 1.0}
    result = evaluated(address, tmp_path, **settings)
    assert len(result.samples) == 3
    assert all(sample.score is not None for sample in result.samples)
    assert all(sample.tokens and sample.tokens <= 8 for sample in result.samples)
    assert result.account["requests"] == 3
    again = evaluated(address, tmp_path, **settings)
    assert again.samples == result.samples
    assert again.account["requests"] == 0


def test_a_model_that_is_not_served_is_an_error(address, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOCLAVE_CACHE", str(tmp_path))
    with pytest.raises((InputError, FaultError), match=r"127\.0\.0\.1"):
        evaluated(address, tmp_path, **{"endpoint.model": "/nowhere/at/all"})
