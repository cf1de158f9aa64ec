"""What does not fit together is named before weights are loaded: tokenizers, shapes, layers for adapters."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from autoclave.config import LoraConfig, TinyModelConfig
from autoclave.core import ConfigError, InputError
from autoclave.models import (
    build_tiny_policy,
    load_policy,
    load_tokenizer,
    require_same_vocabulary,
    require_targets,
    save_model,
    tiny_architecture,
)
from tests.training_parts import TEXTS, TINY, tiny_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny_policy(), tmp_path / "model")
    return tmp_path / "model"


def change(path: Path, **settings: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def refused(folder: Path, load: Callable[[Path], object] = load_tokenizer) -> str:
    with pytest.raises(InputError) as caught:
        load(folder)
    message = str(caught.value)
    assert message.startswith(f"model.path = '{folder}': ")
    assert "\n" not in message
    return message.removeprefix(f"model.path = '{folder}': ")


# --- A folder ------------------------------------------------------------------------------------------------------


def test_a_tokenizer_with_more_tokens_than_the_model_has_embeddings_is_refused(folder: Path):
    tokenizer, size = tiny_policy().tokenizer, len(tiny_policy().tokenizer)
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<one>", "<two>"])
    tokenizer.save_pretrained(folder)
    expected = f'its tokenizer has token "<two>" of id {size + 1}, its model embeddings for ids below {size}; give'
    assert refused(folder).startswith(expected)


def test_embeddings_beyond_the_last_token_are_padding(folder: Path):
    size = len(tiny_policy().tokenizer)
    weights = load_file(folder / "model.safetensors")
    name = "model.embed_tokens.weight"
    weights[name] = torch.cat([weights[name], torch.zeros(8, weights[name].shape[1])])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder / "config.json", vocab_size=size + 8)
    assert load_policy(folder, device="cpu").model.config.vocab_size == size + 8


def test_weights_of_another_shape_than_the_settings_are_named_with_both(folder: Path):
    change(folder / "config.json", intermediate_size=90)
    message = refused(folder)
    assert message.startswith(
        "weights of another architecture than its config.json: model.layers.0.mlp.down_proj.weight"
    )
    assert "is 32 x 85 in the file and 32 x 90 by config.json; give a folder whose" in message


def test_weights_that_are_not_there_are_missed_before_they_are_loaded(folder: Path):
    (folder / "model.safetensors").unlink()
    assert refused(folder).startswith("no weights in this folder")


def test_damaged_weights_are_found_before_they_are_loaded(folder: Path):
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:300])
    assert refused(folder).startswith("model.safetensors is damaged (")


def test_weights_that_lack_a_layer_are_refused(folder: Path):
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert refused(folder, lambda path: load_policy(path, device="cpu")) == "its weights lack model.norm.weight"


def test_an_adapter_alone_is_no_model(folder: Path):
    (folder / "config.json").rename(folder / "adapter_config.json")
    assert refused(folder).startswith("an adapter alone; give a whole model")


@pytest.mark.parametrize(("name", "message"), [("chat_template.jinja", "no chat template"), ("tokenizer.json", "")])
def test_a_folder_without_a_part_of_its_tokenizer_is_refused(folder: Path, name: str, message: str):
    (folder / name).unlink()
    assert message in refused(folder)


# --- Two tokenizers ------------------------------------------------------------------------------------------------


def tokenizer(texts: list[str] = TEXTS) -> PreTrainedTokenizerBase:
    return build_tiny_policy(TinyModelConfig(**TINY.model_dump()), texts, seed=0, device="cpu").tokenizer


def test_the_same_tokenizer_from_another_place_is_the_same(folder: Path):
    require_same_vocabulary(load_tokenizer(folder), tokenizer(), place="critic.path")


def test_another_vocabulary_is_named_by_a_token_they_disagree_on():
    with pytest.raises(InputError) as caught:
        require_same_vocabulary(tokenizer(["other words, other words"]), tokenizer(), place="critic.path = 'x'")
    message = str(caught.value)
    assert message.startswith("critic.path = 'x': another tokenizer than the policy's: token \"")
    assert message.endswith("tokens differ); give a model with the policy's own tokenizer")


def test_a_token_more_is_another_vocabulary():
    larger = tokenizer()
    larger.add_tokens(["<extra>"])
    for found, expected in ((larger, tokenizer()), (tokenizer(), larger)):
        with pytest.raises(InputError, match=r'token "<extra>" has id .*none.* \(1 tokens differ\)'):
            require_same_vocabulary(found, expected, place="critic.path")


# --- Layers for adapters -------------------------------------------------------------------------------------------


def test_layers_for_adapters_are_looked_for_without_loading_weights():
    architecture = tiny_architecture(TINY, 300)
    require_targets(architecture, LoraConfig())
    require_targets(architecture, LoraConfig(targets=("q_proj", "down_proj")))
    with pytest.raises(ConfigError, match=r"'c_fc' is no linear layer of this model; known are down_proj"):
        require_targets(architecture, LoraConfig(targets=("c_fc",)))
