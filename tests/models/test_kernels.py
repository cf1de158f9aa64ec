"""Kernels that this machine may lack: what is said of it, and when."""

from __future__ import annotations

import pytest
import torch

from autoclave.compose.workers import open_pools
from autoclave.config import ModelConfig, TrainConfig, TrainerConfig
from autoclave.core import ConfigError, HostError
from autoclave.models import apply_liger, require_liger
from autoclave.models import attention as module
from tests.training_parts import tiny_policy


def test_liger_on_a_cpu_is_refused_before_models_load():
    config = TrainConfig(model=ModelConfig(device="cpu"), trainer=TrainerConfig(liger=True))
    with (
        pytest.raises(ConfigError, match=r"trainer.liger = true: .* run on cpu; set trainer.liger=false"),
        open_pools(config),
    ):
        pass


def test_liger_is_not_applied_to_a_model_on_a_cpu():
    with pytest.raises(ConfigError, match="run on cpu"):
        apply_liger(tiny_policy().model, torch.device("cpu"))


def test_a_missing_package_is_named_with_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(HostError, match=r"not installed. Fix: pip install .*\[liger\]"):
        require_liger(torch.device("cuda"))
