"""Defaults of a training run follow the size of the model; those of the embedded policy stay as they are."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import Resolved, TrainConfig, load, parse_override
from autoclave.config.model_size import EMBEDDED, count_parameters, parameters_of, rate_limit, size_in_words

RECIPES = Path(__file__).parents[2] / "recipes"
# Numbers of public config.json files, and the parameters that their model cards name.
PUBLIC: dict[str, tuple[dict[str, Any], float]] = {
    "SmolLM2-135M": (
        {
            "hidden_size": 576,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "vocab_size": 49152,
            "tie_word_embeddings": True,
        },
        134.5e6,
    ),
    "Qwen2.5-7B": (
        {
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "intermediate_size": 18944,
            "vocab_size": 152064,
            "tie_word_embeddings": False,
        },
        7.62e9,
    ),
    "Mixtral-8x7B": (
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "num_local_experts": 8,
        },
        46.7e9,
    ),
}


def resolved(*settings: str, recipe: Path | None = None) -> Resolved[TrainConfig]:
    return load(TrainConfig, recipe, [parse_override(setting) for setting in settings])


def write_weights(folder: Path, name: str, *shapes: tuple[int, ...]) -> None:
    """The header of a safetensors file; nothing reads the numbers."""
    tensors = {str(i): {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for i, shape in enumerate(shapes)}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(header)) + header)


# --- Counting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_by_config_json_are_those_of_the_model_card(name: str):
    settings, parameters = PUBLIC[name]
    assert count_parameters(settings) == pytest.approx(parameters, rel=0.01)
    assert count_parameters({"model_type": "multimodal", "text_config": settings}) == count_parameters(settings)


def test_headers_of_weights_count_before_config_json(tmp_path: Path):
    write_weights(tmp_path, "model-00001-of-00002.safetensors", (1000, 1000), (7,))
    write_weights(tmp_path, "model-00002-of-00002.safetensors", (500, 2, 3))
    write_weights(tmp_path, "consolidated.safetensors", (1000, 1000))  # the same weights in another layout
    (tmp_path / "config.json").write_text(json.dumps(PUBLIC["Qwen2.5-7B"][0]))
    assert parameters_of(str(tmp_path)) == 1_003_007


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 7e9),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 135e6),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.5e9),
        ("bigcode/starcoder2-3b", 3e9),
        ("meta-llama/Llama-3.1-8B", 8e9),
        ("mistralai/Mixtral-8x7B-v0.1", 56e9),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("some/model-4bit", None),
        ("some/phi-3-mini-128k", None),
        ("./nowhere-7B/model", None),
    ],
)
def test_a_name_on_the_hub_tells_the_size(name: str, parameters: float | None):
    assert parameters_of(name) == parameters


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, struct.pack("<Q", 1 << 62) + b"{", struct.pack("<Q", 2) + b"[]"])
def test_damaged_weights_have_no_size(tmp_path: Path, content: bytes):
    (tmp_path / "model.safetensors").write_bytes(content)
    assert parameters_of(str(tmp_path)) is None
    assert resolved(f"model.path={tmp_path}").config.optimizer == TrainConfig().optimizer


# --- Defaults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "rate", "tokens"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 1e-5, 512),
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct", 5e-6, 512),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", 1e-6, 1024),
        ("some/model-of-unknown-size", 1e-6, 1024),
    ],
)
def test_a_model_without_settings_has_the_defaults_of_its_size(path: str, rate: float, tokens: int):
    config = resolved(f"model.path={path}").config
    assert (config.optimizer.learning_rate, config.sampler.max_new_tokens) == (rate, tokens)
    assert (config.problems.name, config.sft.is_on, config.judge.time_limit_range) == ("none", False, (6.0, 12.0))


@pytest.mark.parametrize("path", ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B", "x/model-405B"])
@pytest.mark.parametrize("adapter", [[], ["trainer.lora.rank=8"]])
def test_defaults_are_within_the_limit_of_the_size(path: str, adapter: list[str]):
    config = resolved(f"model.path={path}", "algorithm.name=ppo", *adapter).config
    limit = rate_limit(parameters_of(path) or 0) * (10 if adapter else 1)
    assert config.optimizer.learning_rate < config.critic.optimizer.learning_rate < limit


def test_a_critic_has_ten_times_the_rate_of_the_policy_and_not_that_of_the_demo():
    config = resolved("algorithm.name=ppo", recipe=RECIPES / "coderl-plus-qwen2.5-coder-7b.yaml").config
    assert (config.optimizer.learning_rate, config.critic.optimizer.learning_rate) == (1e-6, 1e-5)


def test_an_adapter_has_ten_times_the_rate():
    assert resolved("model.path=x/a-7B", "trainer.lora={}").config.optimizer.learning_rate == 1e-5


def test_what_is_given_is_untouched(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text(
        "{model: {path: x/a-7B}, optimizer: {learning_rate: 3e-6}, sft: {epochs: 2}, problems: {name: synthetic}}"
    )
    config = resolved(
        "sampler={max_new_tokens: 77}", "sampler.engine.batch_size=3", recipe=tmp_path / "recipe.yaml"
    ).config
    assert (config.optimizer.learning_rate, config.sft.epochs, config.problems.name) == (3e-6, 2, "synthetic")
    assert (config.sampler.max_new_tokens, config.sampler.engine.batch_size) == (77, 3)
    assert config.sft.optimizer.learning_rate == 1e-5


def test_a_block_given_in_part_has_the_other_defaults_of_the_size():
    config = resolved("model.path=x/a-7B", "optimizer={decay: none}", "sampler={temperature: 0.5}").config
    assert (config.optimizer.learning_rate, config.sampler.max_new_tokens) == (1e-6, 1024)


def test_stages_of_length_decide_the_length():
    stages = (
        "length_schedule={stages: [{max_new_tokens: 100}, {max_new_tokens: 200}], advance: {name: steps, steps: [5]}}"
    )
    assert resolved("model.path=x/a-7B", stages).config.longest_trained == 200


def test_settings_say_which_of_them_follow_the_size():
    origins = {path: origin for path, _, origin in resolved("model.path=x/a-7B", "steps=5").lines()}
    assert origins["optimizer.learning_rate"] == "default by the size of the model"
    assert (origins["steps"], origins["group_size"]) == ("command line", "default")


@pytest.mark.parametrize("setting", ["model=5", "model.path=[1]", "optimizer=5", "sampler.engine=7", "algorithm=[]"])
def test_a_mistake_is_still_the_users(setting: str):
    with pytest.raises(ValueError, match=setting.partition(".")[0].partition("=")[0]):
        resolved("model.path=x/a-7B", setting)


EMBEDDED_RECIPES = ("demo", "demo-alignment", "length-schedule", "mathematics", "ppo-small")


@pytest.mark.parametrize("name", EMBEDDED_RECIPES)
def test_a_recipe_of_the_embedded_policy_has_its_settings_over_the_declared_defaults(name: str):
    recipe = RECIPES / f"{name}.yaml"
    assert {origin for _, _, origin in resolved(recipe=recipe).lines()} == {str(recipe), "default"}
    assert resolved(recipe=recipe).config.micro_batch_tokens == TrainConfig().micro_batch_tokens


def test_a_folder_of_the_size_of_the_embedded_policy_has_its_defaults(tmp_path: Path):
    write_weights(tmp_path, "model.safetensors", (EMBEDDED - 1,))
    assert resolved(f"model.path={tmp_path}").config.optimizer == TrainConfig().optimizer
    write_weights(tmp_path, "model.safetensors", (EMBEDDED,))
    assert resolved(f"model.path={tmp_path}").config.optimizer.learning_rate == 1e-5


def test_no_path_means_the_embedded_policy_on_top_of_any_recipe(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{model: {path: x/a-7B}, steps: 7}")
    assert resolved("model.path=", recipe=recipe).config == TrainConfig(steps=7)


def test_sizes_are_written_as_people_do():
    assert [size_in_words(number) for number in (494_032_768, 7_615_616_512)] == ["494M", "7.62B"]
