"""What an optimizer step does to weights, in their own number format."""

from __future__ import annotations

import pytest
import torch

from autoclave.workers.trainer.trained_model import take_step


def moved(dtype: torch.dtype, learning_rate: float, *, with_gradient: float = 1.0) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter((0.02 * torch.randn(300, 70, generator=generator)).to(dtype))
    weights.grad = (torch.rand(300, 70, generator=generator) < with_gradient).to(dtype)
    optimizer = torch.optim.AdamW([weights], lr=learning_rate, weight_decay=0.0)
    return take_step([weights], optimizer.step)


def test_the_size_of_an_update_is_relative_to_the_weights():
    assert moved(torch.float32, 2e-4)["relative_update"] == pytest.approx(0.01, rel=0.02)


def test_bfloat16_weights_keep_most_of_what_they_were_at_a_rate_that_float32_weights_follow():
    assert moved(torch.bfloat16, 1e-6)["changed_share"] < 0.03
    assert moved(torch.float32, 1e-6)["changed_share"] > 0.999
    assert moved(torch.bfloat16, 1e-3)["changed_share"] > 0.9


def test_weights_without_a_gradient_do_not_count():
    assert moved(torch.float32, 1e-3, with_gradient=0.1)["changed_share"] == 1.0
    assert moved(torch.float32, 1e-3, with_gradient=0.0) == {"relative_update": 0.0, "changed_share": 1.0}
