"""Rates, problems and recipes that do not suit the model are errors that say the fix; healthy ones pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from autoclave.cli.main import cli
from autoclave.cli.settings import resolve
from autoclave.config import TrainConfig, load, parse_override
from autoclave.config.model_fit import require_problems, require_rates_above_rounding, require_rates_within_limits
from autoclave.core import ConfigError
from autoclave.workers.trainer.trained_model import take_step

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "recipes" / "demo.yaml")
FILES = ("problems.name=files", "problems.train=a.jsonl", "problems.heldout=b.jsonl")


def config_of(*settings: str) -> TrainConfig:
    return load(TrainConfig, None, [parse_override(setting) for setting in settings]).config


def check(config: TrainConfig) -> None:
    require_problems(config)
    require_rates_within_limits(config)
    require_rates_above_rounding(config)


def fix_of(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    """The settings after `Fix:`."""
    return [word for word in str(error.value).partition("Fix: ")[2].replace(",", "").split() if "=" in word]


# --- Rates beyond the size of the model ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-Coder-0.5B", "Qwen/Qwen2.5-32B"])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (["optimizer.learning_rate=4e-4"], "optimizer"),
        (["algorithm.name=ppo", "critic.optimizer.learning_rate=2e-3"], "critic.optimizer"),
        (["sft.epochs=1", "sft.optimizer.learning_rate=3e-3"], "sft.optimizer"),
        (["trainer.lora={}", "optimizer.learning_rate=4e-3"], "optimizer"),
    ],
)
def test_a_rate_of_the_embedded_policy_is_beyond_a_pretrained_model(model: str, settings: list[str], name: str):
    given = [f"model.path={model}", *FILES, *settings]
    with pytest.raises(ConfigError, match=rf"^{name}\.learning_rate = .*GPT-3, table 2\.1.*Fix: {name}") as error:
        check(config_of(*given))
    check(config_of(*given, *fix_of(error)))


@pytest.mark.parametrize(
    ("model", "rate"), [("SmolLM2-135M", 1e-4), ("Qwen2.5-7B", 2e-5), ("Qwen2.5-32B", 2e-5), ("x-70B", 2e-5)]
)
def test_rates_that_were_published_pass(model: str, rate: float):
    check(config_of(f"model.path=x/{model}", *FILES, f"optimizer.learning_rate={rate}"))


def test_the_size_of_a_critic_from_elsewhere_is_its_own():
    settings = ("model.path=x/a-135M", *FILES, "algorithm.name=ppo", "critic.optimizer.learning_rate=1e-4")
    check(config_of(*settings))
    with pytest.raises(ConfigError, match=r"critic\.optimizer\.learning_rate = 0\.0001: .* models of 7B parameters"):
        check(config_of(*settings, "critic.path=x/b-7B"))


def test_rates_of_models_without_path_are_not_limited():
    check(config_of("optimizer.learning_rate=0.04", "algorithm.name=ppo"))


# --- Rates below the rounding step -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (["optimizer.learning_rate=1e-6"], "optimizer"),
        (["optimizer.learning_rate=2e-5"], "optimizer"),
        (["optimizer.learning_rate=4e-5", "algorithm.name=ppo", "critic.optimizer.learning_rate=1e-5"], "critic"),
        (["optimizer.learning_rate=4e-5", "sft.epochs=1", "sft.optimizer.learning_rate=1e-5"], "sft"),
    ],
)
def test_a_rate_below_the_rounding_step_of_bfloat16_is_refused(settings: list[str], name: str):
    given = ["model.path=x/a-1.5B", "model.dtype=bfloat16", *FILES, *settings]
    with pytest.raises(ConfigError, match=rf"^{name}.*learning_rate = .*: below 3\.1e-05, half the rounding") as error:
        check(config_of(*given))
    assert fix_of(error) == ["model.dtype=float32", "trainer.mixed_precision=bfloat16"]
    check(config_of(*given, *fix_of(error)))


def test_adapters_stay_in_float32_beside_weights_in_bfloat16():
    check(config_of("model.path=x/a-7B", "model.dtype=bfloat16", "trainer.lora={}", *FILES))


def test_the_step_follows_the_deviation_that_config_json_names(tmp_path: Path):
    shape = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "initializer_range": 0.005}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    settings = (f"model.path={tmp_path}", "model.dtype=bfloat16", *FILES)
    check(config_of(*settings, "optimizer.learning_rate=1e-5"))
    with pytest.raises(ConfigError, match=r"below 7\.6e-06, half the rounding step of the median weight \(0\.0034\)"):
        check(config_of(*settings, "optimizer.learning_rate=7e-6"))


@pytest.mark.parametrize(("rate", "changes"), [(3.0e-5, False), (3.2e-5, True)])
def test_the_step_is_where_half_of_the_weights_begin_to_change(rate: float, changes: bool):
    weights = (0.02 * torch.randn(20_000, generator=torch.Generator().manual_seed(0))).bfloat16().requires_grad_()
    weights.grad = torch.ones_like(weights)
    measured = take_step([weights], torch.optim.AdamW([weights], lr=rate, weight_decay=0.0).step)["changed_share"]
    config = config_of("model.path=x/a-1.5B", "model.dtype=bfloat16", *FILES, f"optimizer.learning_rate={rate}")
    assert (measured > 0.5) is changes
    if changes:
        check(config)
    else:
        with pytest.raises(ConfigError, match="half the rounding step"):
            check(config)


# --- Problems --------------------------------------------------------------------------------------------------------


def test_a_pretrained_model_without_problems_is_refused_with_what_to_give():
    with pytest.raises(ConfigError, match=r"no problems are given\. Fix: problems\.name=files problems\.train=FILE"):
        check(config_of("model.path=x/a-7B"))
    check(config_of("model.path=x/a-7B", "problems.name=synthetic"))
    check(TrainConfig())


def test_a_warm_start_of_a_pretrained_model_needs_a_length_problems_and_a_rate_that_suits(tmp_path: Path):
    def said(*settings: str) -> str:
        words = ["sft", "model.path=x/a-7B", *settings, "--out", str(tmp_path / "out")]
        return str(CliRunner().invoke(cli, words).exception)

    assert said(*FILES) == "sft.steps = 0: there is nothing to train. Fix: sft.epochs=3, for example"
    assert "no problems are given" in said("sft.epochs=3")
    assert said(*FILES, "sft.epochs=3", "sft.optimizer.learning_rate=3e-3").startswith("sft.optimizer.learning_rate")
    assert "rounding step" in said(*FILES, "sft.epochs=3", "model.dtype=bfloat16")
    # The rate of the policy, which is not trained here, does not count.
    assert "a.jsonl" in said(*FILES, "sft.epochs=3", "optimizer.learning_rate=1")


# --- A recipe of the embedded policy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "demo-alignment", "length-schedule", "mathematics", "ppo-small", "repair"])
@pytest.mark.parametrize("command", ["train", "plan", "sft"])
def test_a_pretrained_model_inherits_nothing_of_the_embedded_policy(name: str, command: str, tmp_path: Path):
    recipe = ROOT / "recipes" / f"{name}.yaml"
    out = [] if command == "plan" else ["--out", str(tmp_path / "run")]
    ended = CliRunner().invoke(cli, [command, str(recipe), "model={path: Qwen/Qwen2.5-0.5B}", *out])
    assert isinstance(ended.exception, ConfigError)
    said = str(ended.exception)
    for setting in ("problems.name", "judge.time_limit_range", "optimizer.learning_rate"):
        assert setting in said
    assert ("length_schedule.stages" if name == "length-schedule" else "sampler.max_new_tokens") in said
    assert "Fix: leave the recipe out" in said
    assert not (tmp_path / "run").exists()


def test_settings_given_on_the_command_line_are_not_inherited():
    own = ("task.template=code", "judge.time_limit_range=[6,12]", "optimizer.learning_rate=1e-5")
    given = (DEMO, "model.path=x/a-0.5B", *FILES, *own)
    with pytest.raises(ConfigError, match=r"and its sampler\.max_new_tokens do not"):
        resolve(TrainConfig, given)
    check(resolve(TrainConfig, (*given, "sampler.max_new_tokens=64")).config)


def test_a_recipe_of_a_pretrained_model_may_get_another_one(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{model: {path: x/a-0.5B}, sampler: {max_new_tokens: 96}, problems: {name: synthetic}}")
    assert resolve(TrainConfig, [str(recipe), "model.path=x/b-1B"]).config.sampler.max_new_tokens == 96


def test_a_recipe_without_a_model_and_with_settings_for_any_is_fine(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("{problems: {name: files, train: a, heldout: b}, sampler: {max_new_tokens: 2048}}")
    check(resolve(TrainConfig, [str(recipe), "model.path=x/a-7B"]).config)


def test_the_embedded_policy_that_a_run_wrote_goes_on_with_the_recipe(tmp_path: Path):
    shape = {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 768}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    config = resolve(TrainConfig, [DEMO, f"model.path={tmp_path}", "sft.steps=0"]).config
    assert (config.optimizer.learning_rate, config.sampler.max_new_tokens) == (4e-4, 64)
    check(config)


# --- What the pages say ----------------------------------------------------------------------------------------------


def examples() -> list[Any]:
    """Commands of the pages that train a pretrained model."""
    found: list[Any] = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        lines = page.read_text().replace("\\\n", " ").splitlines()
        commands = [line.split() for line in lines if line.startswith("    autoclave train ") and "model.path=" in line]
        found += [pytest.param(words[2:], id=page.name) for words in commands]
    return found


def test_the_readme_trains_a_pretrained_model():
    assert "README.md" in [each.id for each in examples()]


@pytest.mark.parametrize("words", examples())
def test_the_examples_for_pretrained_models_learn(words: list[str]):
    check(resolve(TrainConfig, [word.strip("'") for word in words if not word.startswith(("[", "--"))]).config)
