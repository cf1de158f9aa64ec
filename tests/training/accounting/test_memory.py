"""Bytes against what torch really keeps: saved tensors of real models, the optimizer's state, the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from autoclave.rollout.key_value_cache import growing_cache, repeat_rows
from autoclave.training.accounting import ModelShape, read_shape
from autoclave.training.accounting.memory import (
    activation_bytes,
    adam_bytes,
    export_bytes,
    key_value_bytes,
    logits_bytes,
)

from .models import models

ROWS, LENGTH = 4, 32


def shape_in(folder: Path, model: PreTrainedModel) -> ModelShape:
    model.config.save_pretrained(folder)
    return read_shape(folder)


def padded_rows() -> tuple[torch.Tensor, torch.Tensor]:
    ids, mask = torch.zeros((ROWS, LENGTH), dtype=torch.int64), torch.ones((ROWS, LENGTH), dtype=torch.int64)
    mask[0, -1] = 0
    return ids, mask


def saved_bytes(model: PreTrainedModel) -> int:
    """What autograd keeps of a forward pass through the layers, beside the weights."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in model.parameters()}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage
        return tensor

    ids, mask = padded_rows()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(storage.nbytes() for storage in saved.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", models())
def test_activations_are_what_autograd_keeps(name: str, dtype: str, tmp_path: Path):
    model = models()[name].to(getattr(torch, dtype)).eval()
    width = {"float32": 4, "bfloat16": 2}[dtype]
    expected = activation_bytes(shape_in(tmp_path, model), ROWS, LENGTH, width)
    assert expected == pytest.approx(saved_bytes(model), rel=0.03)


def test_with_recomputation_one_layer_is_whole_and_of_the_others_the_input_is_kept(tmp_path: Path):
    shape = shape_in(tmp_path, models()["llama"])
    whole, saving = (activation_bytes(shape, 1, 1, 4, recomputes=recomputes) for recomputes in (False, True))
    layer = (whole - 3 * 4 * 64) // 3  # three layers, and the final norm of three arrays of 64 numbers
    assert saving == 3 * 4 * 64 + layer + 3 * 4 * 64


def test_the_optimizer_keeps_two_numbers_per_weight(tmp_path: Path):
    model = models()["qwen2"]
    optimizer = torch.optim.AdamW(model.parameters())
    for weights in model.parameters():
        weights.grad = torch.zeros_like(weights)
    optimizer.step()
    held = sum(t.nbytes for state in optimizer.state.values() for t in state.values() if t.ndim)
    assert adam_bytes(shape_in(tmp_path, model), 4) == held


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_the_copy_for_the_sampler_holds_a_shared_embedding_twice(name: str, tmp_path: Path):
    model = models()[name]
    copy = [tensor.detach().clone() for tensor in model.state_dict().values()]
    assert export_bytes(shape_in(tmp_path, model), 4) == sum(tensor.nbytes for tensor in copy)


@pytest.mark.parametrize("name", ["llama", "llama, full heads"])
def test_the_cache_has_room_for_every_token_of_every_row(name: str, tmp_path: Path):
    model = models()[name].eval()
    ids, mask = padded_rows()
    cache = growing_cache(model.config, reserve=8)
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
    repeat_rows(cache, torch.full((ROWS,), 2))
    held = sum(t.untyped_storage().nbytes() for layer in cache.layers for t in (layer.keys, layer.values))
    assert key_value_bytes(shape_in(tmp_path, model), 2 * ROWS, LENGTH + 8, 4) == held


def test_logits_in_chunks_take_what_a_chunk_takes(tmp_path: Path):
    shape = shape_in(tmp_path, models()["llama"])
    assert logits_bytes(shape, 100, 4) == 100 * 320 * 4 * 3  # logits and two arrays of their size
    assert logits_bytes(shape, 100, 2) == 100 * 320 * (2 + 2 * 4)
    assert logits_bytes(shape, 100, 4, chunk=10) == logits_bytes(shape, 10, 4)
    assert logits_bytes(shape, 5, 4, chunk=10) == logits_bytes(shape, 5, 4)
