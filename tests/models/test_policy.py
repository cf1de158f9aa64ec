"""A policy on disk is the policy that was saved, and what is none is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from autoclave.config import TrainConfig, load
from autoclave.core import HostError, InputError
from autoclave.models import Policy, encode_prompt, load_policy, resolve_device, save_model
from tests.training_parts import tiny_policy

RECIPES = Path(__file__).parents[2] / "recipes"
IDS = torch.tensor([[2, 40, 41, 3, 60, 61, 62]])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    save_model(tiny_policy(), folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that the test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def refusal_of(folder: Path) -> str:
    with pytest.raises(InputError) as refused:
        load_policy(folder, device="cpu")
    return str(refused.value)


# --- Round trip ----------------------------------------------------------------------------------------------------


def test_a_saved_policy_loads_with_equal_weights(saved):
    loaded, policy = load_policy(saved, device="cpu"), tiny_policy()
    weights = policy.model.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.model.state_dict().items())
    # Mapped weights lie elsewhere in a cache line, and kernels round otherwise there.
    torch.testing.assert_close(loaded.model(IDS).logits, policy.model(IDS).logits)
    assert not loaded.model.training


def test_a_saved_tokenizer_loads_with_its_template_and_end_token(saved):
    before, after = tiny_policy(), load_policy(saved, device="cpu")
    messages = [{"role": "user", "content": "Print 14.\n\tnow  é"}]
    assert encode_prompt(after.tokenizer, messages).tolist() == encode_prompt(before.tokenizer, messages).tolist()
    assert after.end_tokens == before.end_tokens


def test_a_base_model_is_given_a_template_which_is_then_saved_with_it(folder, tmp_path):
    template = load(TrainConfig, RECIPES / "ppo-apps-starcoder2-3b.yaml").config.model.chat_template
    (folder / "chat_template.jinja").unlink()
    assert "give one in model.chat_template" in refusal_of(folder)
    save_model(load_policy(folder, device="cpu", chat_template=template), tmp_path / "saved")
    tokenizer = load_policy(tmp_path / "saved", device="cpu").tokenizer
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Print 3."}]
    assert tokenizer.decode(encode_prompt(tokenizer, messages)) == (
        "### system\nBe brief.\n### user\nPrint 3.\n### assistant\n"
    )


def test_a_second_round_trip_changes_no_weight(saved, tmp_path):
    save_model(load_policy(saved, device="cpu"), tmp_path)
    first, second = (load_file(place / "model.safetensors") for place in (saved, tmp_path))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weights_can_be_loaded_in_another_number_format(saved):
    assert load_policy(saved, dtype="bfloat16", device="cpu").model.dtype is torch.bfloat16


def test_end_tokens_are_those_of_tokenizer_and_generation_settings():
    policy = tiny_policy()
    policy.model.generation_config.eos_token_id = [policy.end_token, 7]
    assert policy.end_tokens == {policy.end_token, 7}


def test_end_tokens_need_no_generation_settings():
    policy = tiny_policy()
    policy.model.generation_config = None
    assert Policy(policy.model, policy.tokenizer).end_tokens == {policy.end_token}


# --- Refusals ------------------------------------------------------------------------------------------------------


def test_a_missing_folder_is_named(tmp_path):
    message = refusal_of(tmp_path / "none")
    assert message.startswith(f"model.path = '{tmp_path}/none'")
    assert "\n" not in message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "tokenizer_config.json"])
@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_a_missing_or_torn_file_is_refused_in_one_line(folder, name, damage):
    if damage == "missing":
        (folder / name).unlink()
    else:
        os.truncate(folder / name, (folder / name).stat().st_size // 2)
    message = refusal_of(folder)
    assert message.startswith(f"model.path = '{folder}'")
    assert "\n" not in message


def test_weights_that_lack_a_tensor_are_refused_not_made_up(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "model.layers.1.mlp.up_proj.weight" in refusal_of(folder)


def test_weights_of_another_shape_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))
    assert "\n" not in refusal_of(folder)


def test_a_tokenizer_without_a_chat_template_is_refused_with_the_fix(folder):
    (folder / "chat_template.jinja").unlink()
    message = refusal_of(folder)
    assert "no chat template" in message
    assert "use an instruct model" in message


# --- Devices -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_where_there_is_none_is_a_fault_of_the_host_with_the_fix():
    with pytest.raises(HostError, match=r"use model\.device=cpu"):
        resolve_device("cuda")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_auto_is_the_processor_where_there_is_no_gpu():
    assert resolve_device("auto") == torch.device("cpu")
