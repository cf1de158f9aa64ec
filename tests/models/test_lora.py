"""Adapters begin as nothing, add up to plain weights, can be switched off, and come back from disk bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import PreTrainedModel, Starcoder2Config, Starcoder2ForCausalLM

from autoclave.config import LoraConfig
from autoclave.core import ConfigError
from autoclave.models import (
    Policy,
    load_policy,
    plain_weights,
    save_adapter,
    save_model,
    with_adapter,
    without_adapter,
)
from tests.training_parts import tiny_policy

IDS = torch.tensor([[2, 9, 3, 40, 41, 42, 43, 1]])
ALL = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@torch.no_grad()
def logits(model: PreTrainedModel) -> torch.Tensor:
    return model(input_ids=IDS).logits


def adapted(policy: Policy | None = None, *, learnt: bool = True, seed: int = 0, **settings: object) -> Policy:
    """A policy with an adapter whose B is what it could have learnt; or 0."""
    policy = policy or tiny_policy()
    with_adapter(policy.model, LoraConfig(**({"rank": 4, "alpha": 8.0} | settings)), seed=seed)
    if learnt:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, weights in policy.model.named_parameters():
                if "lora_B" in name:
                    weights.copy_(torch.randn(weights.shape, generator=generator) * 0.3)
    return policy


def trainable(model: PreTrainedModel) -> set[str]:
    return {name for name, weights in model.named_parameters() if weights.requires_grad}


# --- In a model ----------------------------------------------------------------------------------------------------


def test_a_new_adapter_changes_no_logit():
    assert torch.equal(logits(adapted(learnt=False).model), logits(tiny_policy().model))


def test_only_adapters_learn_and_every_linear_layer_but_the_output_embedding_has_one():
    names = trainable(adapted().model)
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert {name.split(".")[-4] for name in names} == ALL
    assert len(names) == 2 * len(ALL) * 2  # two matrices, two layers


def test_targets_choose_layers_by_name():
    assert {name.split(".")[-4] for name in trainable(adapted(targets=("v_proj",)).model)} == {"v_proj"}


@pytest.mark.parametrize(
    ("target", "fix"),
    [
        ("q_prj", r"did you mean q_proj\?"),
        ("lm_head", "known are down_proj, gate_proj, k_proj"),
        ("embed_tokens", "known are down_proj, gate_proj, k_proj"),
        ("mlp", "known are"),
    ],
)
def test_a_target_that_is_no_linear_layer_is_refused_with_those_there_are(target: str, fix: str):
    with pytest.raises(ConfigError, match=rf"trainer\.lora\.targets: '{target}' is no linear layer .*{fix}"):
        adapted(targets=("v_proj", target))


def test_the_seed_decides_an_adapter_and_leaves_the_numbers_of_others_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (adapted(seed=seed).model.state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])


def test_without_its_adapter_a_policy_is_what_it_began_as_to_the_last_bit():
    model = adapted().model
    learnt, names = logits(model), trainable(model)
    with without_adapter(model):
        assert torch.equal(logits(model), logits(tiny_policy().model))
    assert torch.equal(logits(model), learnt)
    assert not torch.allclose(learnt, logits(tiny_policy().model), atol=0.1)
    assert trainable(model) == names


def test_a_model_that_learns_as_a_whole_has_no_reference_inside():
    with pytest.raises(ValueError, match="this model has no adapter"), without_adapter(tiny_policy().model):
        pass


def test_adapters_of_a_half_precision_model_keep_single_precision():
    model = adapted(tiny_policy(dtype=torch.bfloat16)).model
    assert {weights.dtype for weights in model.parameters() if weights.requires_grad} == {torch.float32}
    assert {weights.dtype for weights in model.parameters() if not weights.requires_grad} == {torch.bfloat16}
    assert {weights.dtype for _, weights in plain_weights(model)} == {torch.bfloat16}
    assert logits(model).dtype == torch.bfloat16


# --- Merged --------------------------------------------------------------------------------------------------------


def other_family() -> Policy:
    """A model whose linear layers have other names, and biases."""
    shape = Starcoder2Config(
        vocab_size=320,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    return Policy(Starcoder2ForCausalLM(shape).eval(), tiny_policy().tokenizer)


@pytest.mark.parametrize("make", [tiny_policy, other_family])
def test_merged_and_saved_it_gives_the_same_logits_when_loaded_plainly(make, tmp_path: Path):
    policy = adapted(make())
    save_model(policy, tmp_path)
    loaded = load_policy(tmp_path, device="cpu").model
    assert not hasattr(loaded, "peft_config")
    assert (logits(loaded) - logits(policy.model)).abs().max() < 1e-5


def test_plain_weights_have_the_names_and_shapes_of_the_model_without_adapters():
    found = {name: tensor.shape for name, tensor in plain_weights(adapted().model)}
    assert found == {name: tensor.shape for name, tensor in tiny_policy().model.state_dict().items()}


def test_a_merged_weight_is_the_frozen_one_and_the_scaled_product():
    model = adapted().model
    state, name = model.state_dict(), "model.layers.1.mlp.up_proj"
    product = state[f"{name}.lora_B.default.weight"] @ state[f"{name}.lora_A.default.weight"]
    expected = state[f"{name}.base_layer.weight"] + 8 / 4 * product
    assert torch.equal(dict(plain_weights(model))[f"{name}.weight"], expected)


def test_merging_as_often_as_one_likes_leaves_the_policy_as_it_is():
    model = adapted().model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first = dict(plain_weights(model))
    for _ in range(20):
        last = dict(plain_weights(model))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(torch.equal(first[name], last[name]) for name in first)


def test_weights_of_a_model_without_adapters_are_its_own():
    model = tiny_policy().model
    state = model.state_dict()
    assert all(tensor.data_ptr() == state[name].data_ptr() for name, tensor in plain_weights(model))


# --- On disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """The folder of the policy that training begins with."""
    save_model(tiny_policy(), tmp_path / "start")
    return tmp_path / "start"


def test_others_read_a_saved_adapter(start: Path, tmp_path: Path):
    policy = adapted(load_policy(start, device="cpu"))
    save_adapter(policy.model, tmp_path / "adapter")
    theirs = PeftModel.from_pretrained(load_policy(start, device="cpu").model, str(tmp_path / "adapter"))
    assert torch.equal(logits(theirs), logits(policy.model))
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(
        start
    )


def test_a_model_without_an_adapter_writes_none(start: Path, tmp_path: Path):
    save_adapter(load_policy(start, device="cpu").model, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
