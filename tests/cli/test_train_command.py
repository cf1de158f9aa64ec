"""`autoclave train` ends before any work: with 2 where settings cannot work, with 3 where something is missing here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import autoclave.compose.preflight as preflight_module
from autoclave.training import loggers

Complaint = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_module, "find_spec", lambda name: None)
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        (["pools.main.memory_gb=0.001"], 2, "Error: pools.main.memory_gb = 0.001: its groups"),
        (["model.path=./nowhere", "sft.steps=0"], 2, "Error: model.path"),
        (["--engine", "vllm"], 3, "Error: sampler.engine.name = vllm: vllm is not installed here"),
        (["loggers=[mlflow]"], 3, "Error: loggers = [mlflow]: mlflow is not installed here"),
        (["pools.main.executor=spawn", "pools.main.processes=256"], 3, "Error: pools.main.processes = 256: this"),
        (["pools.main.memory_gb=0.001", "--engine", "vllm"], 2, "Error: 2 things stand in the way of this run:"),
        (["loggers=[mlflow]", "--engine", "vllm"], 3, "Error: 2 things stand in the way of this run:"),
    ],
)
def test_errors_have_the_exit_code_of_their_kind(
    complaint: Complaint, tmp_path: Path, settings: list[str], code: int, message: str
):
    ended, said = complaint("train", *settings, "--out", tmp_path / "run")
    assert (ended, said.startswith(message)) == (code, True), said
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_a_host_error(complaint: Complaint):
    code, said = complaint("train", "--out", "/proc/run")
    assert (code, said.startswith("Error: /proc: ")) == (3, True), said
