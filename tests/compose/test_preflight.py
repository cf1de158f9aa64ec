"""What stands in the way of a run is found before any work, all of it at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import autoclave.compose.preflight as preflight_module
from autoclave.cli.train import train
from autoclave.compose.preflight import (
    preflight,
    report,
    require_cache_for_one_request,
    require_cores,
    require_packages,
    require_room_on_disk,
)
from autoclave.config import TrainConfig, load, parse_override
from autoclave.core import ConfigError, HostError, InputError


def config_of(**changes: Any) -> TrainConfig:
    return TrainConfig.model_validate_json(json.dumps(changes))


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight_module, "find_spec", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampler": {"engine": {"name": "vllm"}}}, "sampler.engine.name = vllm: vllm is not installed here"),
        ({"pools": {"main": {"executor": "ray"}}}, r"pools\.main\.executor = ray: ray is not installed here"),
        ({"trainer": {"lora": {}}}, "trainer.lora: peft is not installed here"),
        ({"trainer": {"liger": True}}, "trainer.liger = true: liger_kernel is not installed here"),
    ],
)
def test_a_package_that_the_settings_need_is_named_with_the_setting(changes: dict[str, Any], message: str):
    with pytest.raises(HostError, match=message):
        require_packages(config_of(**changes))


@pytest.mark.parametrize("executor", ["spawn", "ray"])
def test_a_pool_of_more_processes_than_the_cores_serve_is_refused(monkeypatch: pytest.MonkeyPatch, executor: str):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    config = config_of(pools={"main": {"executor": executor, "processes": 128}})
    with pytest.raises(HostError, match=r"pools\.main\.processes = 128: this machine has \d+ cores"):
        require_cores(config)


def test_a_ray_cluster_elsewhere_may_have_more_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    require_cores(config_of(pools={"main": {"executor": "ray", "processes": 128}}))


def qwen_like(folder: Path) -> str:
    """A folder with the shape of a 7B model: one token has 2 x 28 x 4 x 128 x 2 = 57,344 bytes of keys and values."""
    shape = {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_size": 3584,
        "max_position_embeddings": 32768,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    return str(folder)


def test_a_cache_that_holds_no_whole_request_is_refused_with_the_size_that_it_needs(tmp_path: Path):
    model = {"path": qwen_like(tmp_path), "dtype": "bfloat16"}
    with pytest.raises(ConfigError, match=r"cache_mb = 256: one request of 32768 tokens needs 1792 MiB"):
        require_cache_for_one_request(config_of(model=model, sampler={"engine": {"name": "vllm"}}))
    require_cache_for_one_request(config_of(model=model, sampler={"engine": {"name": "vllm", "cache_mb": 1792}}))
    require_cache_for_one_request(config_of(model=model, sampler={"engine": {"name": "vllm", "context": 128}}))


def test_a_folder_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    require_room_on_disk([tmp_path / "not" / "yet"])
    monkeypatch.setattr(preflight_module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1 << 20}))
    with pytest.raises(HostError, match=f"{tmp_path}: 1 MiB are free"):
        require_room_on_disk([tmp_path / "not" / "yet"])


def fails(error: Exception):
    def check() -> None:
        raise error

    return check


def test_everything_that_is_wrong_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        report([fails(HostError("no gpu")), lambda: None, fails(ConfigError("bad key")), fails(InputError("no file"))])
    assert str(caught.value).splitlines()[1:] == ["- no gpu", "- bad key", "- no file"]


def test_a_single_mistake_is_reported_as_it_is():
    with pytest.raises(HostError, match=r"^no gpu$"):
        report([fails(HostError("no gpu")), lambda: None])


@pytest.mark.usefixtures("nothing_installed")
def test_training_with_a_missing_engine_ends_before_anything_is_written(tmp_path: Path):
    out = tmp_path / "run"
    ended = CliRunner().invoke(train, ["--engine", "vllm", "--out", str(out)])
    assert isinstance(ended.exception, HostError)
    assert "vllm is not installed here" in str(ended.exception)
    assert not out.exists()


def test_the_default_run_passes(tmp_path: Path):
    preflight(TrainConfig(), tmp_path / "run")


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("algorithm.adv_estimator=grpo", "did you mean algorithm.name?"),
        ("num_generations=8", "did you mean group_size?"),
        ("algorithm.kl_loss_coef=0.1", "did you mean algorithm.kl_coefficient?"),
        ("optimizer.lr=1e-6", "did you mean optimizer.learning_rate?"),
    ],
)
def test_names_of_other_frameworks_suggest_ours(setting: str, hint: str):
    with pytest.raises(ConfigError, match=hint.replace("?", r"\?")):
        load(TrainConfig, None, [parse_override(setting)])


def test_an_empty_value_of_a_text_is_the_empty_text():
    assert load(TrainConfig, None, [parse_override("model.path=")]).config.model.path == ""
