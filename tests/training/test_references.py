"""Which reference a run has: none, a group with weights of its own, or the actor without its adapter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoclave.compose.workers import Workers
from autoclave.config import (
    AlgorithmSettings,
    GrpoConfig,
    GrpoPlusConfig,
    LoraConfig,
    ModelConfig,
    TrainConfig,
    TrainerConfig,
)
from autoclave.models import save_model
from autoclave.workers import WorkerGroup
from autoclave.workers.trainer.reference import NoReference, SharedReference
from tests.training_parts import tiny_policy

LORA = LoraConfig(rank=2)


@pytest.fixture
def reference_of(tmp_path: Path) -> Callable[..., object]:
    """reference_of(algorithm, lora): the reference of a run with these settings."""
    save_model(tiny_policy(), tmp_path)

    def of(algorithm: AlgorithmSettings, lora: LoraConfig | None = None) -> object:
        config = TrainConfig(
            algorithm=algorithm, trainer=TrainerConfig(lora=lora), model=ModelConfig(device="cpu", threads=1)
        )
        workers = Workers(config, tmp_path)
        workers.close()
        return workers.reference

    return of


@pytest.mark.parametrize("lora", [None, LORA])
def test_grpo_plus_has_no_reference(reference_of, lora: LoraConfig | None):
    assert isinstance(reference_of(GrpoPlusConfig(), lora), NoReference)


def test_an_algorithm_with_a_kl_term_has_one_with_weights_of_its_own(reference_of):
    assert isinstance(reference_of(GrpoConfig(kl_coefficient=0.1)), WorkerGroup)


def test_where_an_adapter_learns_the_actor_is_the_reference(reference_of):
    assert isinstance(reference_of(GrpoConfig(kl_coefficient=0.1), LORA), SharedReference)
