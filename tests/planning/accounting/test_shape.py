"""The shape that is read from settings is that of the model which they make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoclave.config import ModelConfig, TinyModelConfig
from autoclave.core import InputError
from autoclave.models import build_tiny_policy
from autoclave.planning.accounting.shape import read_shape, shape_of

from .models import models

MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_the_real_model(name: str, tmp_path: Path):
    MODELS[name].config.save_pretrained(tmp_path)
    assert read_shape(tmp_path).parameters == MODELS[name].num_parameters()


def test_the_embedded_model_needs_no_file():
    config = TinyModelConfig(hidden_size=32, layers=2, heads=2, vocabulary=300, context=128)
    policy = build_tiny_policy(config, ["text " * 50], seed=0, device="cpu")
    shape = shape_of(ModelConfig(tiny=config))
    missing = (shape.vocabulary - len(policy.tokenizer)) * 32  # the tokenizer may find fewer tokens than asked for
    assert shape.parameters - missing == policy.model.num_parameters()
    assert shape.context == 128


def test_the_largest_tensor_is_the_largest_of_the_model(tmp_path: Path):
    MODELS["qwen2"].config.save_pretrained(tmp_path)
    assert read_shape(tmp_path).largest_tensor == max(p.numel() for p in MODELS["qwen2"].parameters())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json: no such file; model.path must be the folder of a model"),
        ("{", "not the settings of a model"),
        ('{"model_type": "bloom"}', 'model_type = "bloom": layers of this family are unknown'),
        ('{"model_type": "llama", "hidden_size": 8}', "num_attention_heads is missing"),
        ("[]", "not the settings of a model"),
    ],
)
def test_what_is_no_known_model_is_an_error_that_names_the_place(tmp_path: Path, content: str | None, message: str):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        shape_of(ModelConfig(path=str(tmp_path)))
    assert str(tmp_path) in str(caught.value)


def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="neither a folder nor on the hub"):
        shape_of(ModelConfig(path="no one/has..this"))


def test_heads_are_not_shared_unless_the_settings_say_so(tmp_path: Path):
    settings = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "vocab_size": 10,
        "max_position_embeddings": 32,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    shape = read_shape(tmp_path)
    assert (shape.key_value_heads, shape.head_width) == (2, 4)
    # 10 x 8 twice for the embeddings, 4 x 8 x 8 of attention, 3 x 8 x 16 of the network, three norms of 8
    assert shape.parameters == 160 + 256 + 384 + 24
