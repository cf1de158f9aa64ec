"""A model that is read part by part is the one that is read as a whole, and no more of it is in memory than needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig, PreTrainedModel

from autoclave.config import LoraConfig, TrainerConfig
from autoclave.models import Policy, load_critic, load_policy, read_part, save_model, with_adapter
from autoclave.workers.trainer import sharding
from tests.training_parts import tiny_critic, tiny_policy

IDS = torch.arange(2, 20)[None]


def policy(folder: Path, **options: Any) -> PreTrainedModel:
    return load_policy(folder, device="cpu", **options).model


def with_lora(folder: Path, **options: Any) -> PreTrainedModel:
    return with_adapter(policy(folder, **options), LoraConfig(rank=2), seed=3)


def critic(folder: Path, **options: Any) -> PreTrainedModel:
    return load_critic(folder, device="cpu", **options).model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("make", [policy, with_lora, critic])
def test_it_is_the_model_that_is_read_as_a_whole(make: Callable[..., PreTrainedModel], dtype: str, tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    whole, parts = make(tmp_path, dtype=dtype), make(tmp_path, dtype=dtype, in_parts=True)
    assert any(weights.is_meta for weights in parts.parameters())
    read_part(parts, parts)
    assert [name for name, _ in parts.named_parameters()] == [name for name, _ in whole.named_parameters()]
    for (name, own), theirs in zip(parts.named_parameters(), whole.parameters(), strict=True):
        assert torch.equal(own, theirs), name
        assert (own.dtype, own.requires_grad) == (theirs.dtype, theirs.requires_grad), name
    assert torch.equal(parts(IDS).logits, whole(IDS).logits)


def test_a_critic_that_learnt_keeps_its_head(tmp_path: Path):
    learnt = tiny_critic()
    torch.nn.init.constant_(learnt.model.score.weight, 0.5)
    save_model(learnt, tmp_path)
    parts = critic(tmp_path, in_parts=True)
    read_part(parts, parts)
    assert torch.equal(parts.score.weight, learnt.model.score.weight)


def test_tied_embeddings_stay_one_weight_and_end_tokens_are_those_of_the_folder(tmp_path: Path):
    saved = tiny_policy()
    saved.model.generation_config = GenerationConfig(eos_token_id=[1, 7])
    save_model(saved, tmp_path)
    found = load_policy(tmp_path, device="cpu", in_parts=True)
    read_part(found.model.lm_head, found.model)
    assert found.model.model.embed_tokens.weight is found.model.lm_head.weight
    assert 7 in found.end_tokens


def test_weights_under_other_names_are_read_as_a_whole(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)  # which loaders skip
    save_file({name.removeprefix("model."): tensor for name, tensor in weights.items()}, path, {"format": "pt"})
    assert not any(weights.is_meta for weights in policy(tmp_path, in_parts=True).parameters())


def test_while_it_is_sharded_no_more_than_a_layer_or_the_embeddings_are_whole(tmp_path: Path, monkeypatch):
    save_model(tiny_policy(), tmp_path)
    model = policy(tmp_path, in_parts=True)
    held: list[int] = []
    shard = sharding.fully_shard

    def counted(unit: torch.nn.Module, **options: Any) -> Any:
        weights = [each for each in model.parameters() if not each.is_meta and not isinstance(each, DTensor)]
        held.append(sum(each.nbytes for each in weights))
        return shard(unit, **options)

    monkeypatch.setattr(sharding, "fully_shard", counted)
    sharding.hold(model, TrainerConfig(mixed_precision="bfloat16"), torch.device("cpu"))
    layer, *_ = tiny_policy().model.model.layers
    rest = tiny_policy().model.get_input_embeddings().weight.nbytes + layer.input_layernorm.weight.nbytes
    assert held == [*[sum(each.nbytes for each in layer.parameters())] * 2, rest]
    assert not any(each.is_meta for each in model.parameters())


def test_a_policy_in_parts_can_be_scored_once_it_is_held(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    found: Policy = load_policy(tmp_path, device="cpu", in_parts=True)
    sharding.hold(found.model, TrainerConfig(), torch.device("cpu"))
    assert torch.equal(found.model(IDS).logits, tiny_policy().model(IDS).logits)
