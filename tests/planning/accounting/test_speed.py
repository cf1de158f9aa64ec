"""Operations by hand, and the metrics made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from autoclave.config import ModelConfig, TinyModelConfig
from autoclave.planning.accounting.shape import read_shape, shape_of
from autoclave.planning.accounting.speed import GPUS, SequenceLengths, Throughput, forward_flops, peak_flops

from .models import models

SHAPE = shape_of(ModelConfig(tiny=TinyModelConfig(hidden_size=8, layers=2, heads=2, vocabulary=300, context=64)))
# Two sequences, of 3 and 5 tokens; 1 and 2 of them have logits. Per layer 4 x 8 x 8 + 3 x 8 x 21 = 760 weights.
COMPUTED = SequenceLengths(np.array([3, 5]), np.array([1, 2]))
FORWARD = 2 * 8 * 2 * 760 + 4 * (9 + 25) * 2 * 8 + 2 * 3 * 300 * 8


def test_operations_are_two_per_weight_and_token_and_those_of_attention():
    assert forward_flops(SHAPE, COMPUTED.whole, COMPUTED.response) == FORWARD


@pytest.mark.parametrize("name", ["llama, full heads", "qwen2", "starcoder2"])
def test_operations_are_those_that_torch_counts(name: str, tmp_path):
    model = models()[name].eval()
    model.config._attn_implementation = "eager"  # matrices that the counter sees
    model.config.save_pretrained(tmp_path)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.zeros((2, 32), dtype=torch.int64), use_cache=False)
    lengths = np.array([32, 32])
    assert forward_flops(read_shape(tmp_path), lengths, lengths) == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_a_step_is_a_forward_and_twice_that_backward_and_its_scorings():
    speed = Throughput(SHAPE, peak_flops=1e6, scoring_passes=1).metrics(COMPUTED, 2.0)
    assert speed["learned_tokens_per_s"] == 4.0
    assert speed["model_flops_per_s"] == 4 * FORWARD / 2
    assert speed["mfu"] == pytest.approx(4 * FORWARD / 2 / 1e6)


def test_without_a_known_peak_there_is_no_mfu_and_without_a_known_shape_no_operations():
    assert Throughput(SHAPE, None, 1).metrics(COMPUTED, 2.0).keys() == {"learned_tokens_per_s", "model_flops_per_s"}
    assert Throughput(None, 1e6, 1).metrics(COMPUTED, 2.0) == {"learned_tokens_per_s": 4.0}


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_devices_are_known_by_the_name_of_their_driver(device: str, name: str):
    assert peak_flops(device, "bfloat16") == next(gpu.peak_flops for gpu in GPUS if gpu.name == name)


@pytest.mark.parametrize("device", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 Laptop GPU", "Some GPU"])
def test_a_device_of_another_kind_has_no_known_peak(device: str):
    assert peak_flops(device, "bfloat16") is None


def test_no_peak_is_known_for_other_numbers():
    assert peak_flops("NVIDIA H100 80GB HBM3", "float32") is None
