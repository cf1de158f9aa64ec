"""The deterministic mode: set in every process that computes, before it does; what cannot be repeated raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autoclave.compose import workers
from autoclave.compose.libraries import settle_determinism, settle_libraries
from autoclave.config import ModelConfig, TrainConfig
from autoclave.models import save_model
from tests.training_parts import tiny_policy

MAKERS = (workers.make_actor, workers._make_reference, workers._make_critic, workers._make_sampler)


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is settled for this process is undone."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    threads = torch.get_num_threads()
    yield
    settle_determinism(False)
    torch.set_num_threads(threads)


def config(*, deterministic: bool) -> TrainConfig:
    return TrainConfig(deterministic=deterministic, model=ModelConfig(device="cpu", threads=1))


def test_an_operation_that_cannot_be_repeated_raises():
    settle_libraries(config(deterministic=True))
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)


def test_it_is_off_unless_it_is_asked_for():
    settle_libraries(config(deterministic=True))
    settle_libraries(config(deterministic=False))
    torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_worker_settles_it_where_it_is_made(make, tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    make(config(deterministic=True), tmp_path)
    assert torch.are_deterministic_algorithms_enabled()
