"""The images are built: the server of one starts with sealed cells, the other trains. Needs an engine and a registry.

AUTOCLAVE_IMAGE_OPTIONS has options of the build: `--build-arg TORCH=...`, or what pip needs behind a proxy.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.ports import reserved_port

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/autoclave-judge:test"
TRAINING = "localhost/autoclave-train:test"
OPEN = ("--security-opt", "seccomp=unconfined")
DENIED = ("--cap-drop=ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=2048:2048")


def call(*words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.fixture(scope="module")
def engine() -> str:
    """Return a container engine."""
    found = next(
        (name for name in ("podman", "docker") if shutil.which(name) and call(name, "info").returncode == 0), ""
    )
    if not found:
        pytest.skip("there is no container engine")
    return found


def build(engine: str, file: str, image: str) -> None:
    """Build an image of this working tree."""
    options = shlex.split(os.environ.get("AUTOCLAVE_IMAGE_OPTIONS", ""))
    words = [engine, "build", "--network", "host", *options, "-f", f"deploy/{file}", "-t", image, "."]
    built = call(*words, timeout_s=3600.0)
    if any(word in built.stderr for word in ("pinging container registry", "failed to resolve", "no such host")):
        pytest.skip("no registry has the base image")
    assert built.returncode == 0, built.stderr[-3000:]


@pytest.mark.soak
def test_the_image_serves_with_sealed_cells_and_no_privilege(engine: str):
    build(engine, "Containerfile", IMAGE)
    with reserved_port() as seat:
        port = seat.getsockname()[1]
    # The store is in the memory of the container, as its root file system is read-only.
    made = "autoclave serve token create --scope judge store=/tmp/s"
    serve = (
        "exec autoclave serve host=0.0.0.0 require_token=true store=/tmp/s audit.file=/tmp/audit.jsonl judge.workers=1"
    )
    words = [
        engine,
        "run",
        "-d",
        "--rm",
        *OPEN,
        *DENIED,
        *LIMITS,
        "-p",
        f"127.0.0.1:{port}:8750",
        "--entrypoint",
        "sh",
        IMAGE,
    ]
    started = call(*words, "-c", f"{made} && {serve}")
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    try:
        until = time.monotonic() + 120
        token = ""
        while time.monotonic() < until and not token:
            lines = call(engine, "logs", name).stdout.split()
            token = lines[0] if "Serving" in lines else ""
            time.sleep(0.5)
        assert token, call(engine, "logs", name)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60.0) as client:
            client.headers["Authorization"] = f"Bearer {token}"
            assert client.get("/v1/ready").json() == {"status": "ok"}
            assert client.get("/v1/server").json()["level"] == "sealed"
            run = client.post("/v1/runs", json={"source": "print(6 * 7)"}).json()
            assert (run["stdout"], run["level"]) == ("42\n", "sealed")
    finally:
        call(engine, "rm", "-f", name)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_the_image_for_training_trains_with_sealed_cells(engine: str):
    build(engine, "Containerfile.train", TRAINING)
    small = ("steps=1", "sft.steps=5", "problems.train=500", "evaluation.final_samples=1", "evaluation.samples=1")
    run = call(engine, "run", "--rm", *OPEN, *LIMITS, TRAINING, "demo", *small, timeout_s=600.0)
    assert run.returncode == 0, run.stderr
    assert "sandbox level: sealed" in run.stdout
    assert "held-out pass@1 at temperature 1" in run.stdout
