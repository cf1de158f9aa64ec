"""What stands in the way of a run is found before any work, all of it at once."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner

import autoclave.compose.preflight as preflight_module
from autoclave.cli.train import train
from autoclave.compose.models import policy_architecture, require_context
from autoclave.compose.preflight import (
    count_weights,
    preflight,
    report,
    require_batch_that_fits,
    require_cache_for_one_request,
    require_cores,
    require_packages,
    require_room_on_disk,
)
from autoclave.config import (
    EngineSettings,
    Override,
    SftConfig,
    TaskSettings,
    TinyModelConfig,
    TrainConfig,
    load,
    parse_override,
)
from autoclave.core import ConfigError, HostError, InputError
from autoclave.models import Policy, build_tiny_policy, load_architecture, save_model


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
        ({"problems": {"name": "files", "path": "a"}}, "problems.path: datasketch is not installed here"),
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


def test_heads_that_do_not_divide_are_in_every_part_of_a_tensor_parallel_sampler(tmp_path: Path):
    model = {"path": qwen_like(tmp_path), "dtype": "bfloat16"}
    settings = {"name": "vllm", "tensor_parallel": 8}  # 4 key-value heads: one in each of 8
    with pytest.raises(ConfigError, match="needs 448 MiB"):
        require_cache_for_one_request(config_of(model=model, sampler={"engine": settings}))
    require_cache_for_one_request(config_of(model=model, sampler={"engine": settings | {"cache_mb": 448}}))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (None, 32768),
        (YARN, 131072),
        ({"rope_type": "linear", "factor": 2.0}, 65536),
        ({"rope_type": "dynamic", "factor": 2.0}, 65536),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
         | {"original_max_position_embeddings": 8192}, 32768),
    ],
)  # fmt: skip
@pytest.mark.parametrize("setting", ["sampler.max_new_tokens", "evaluation.max_new_tokens", "sampler.engine.context"])
def test_lengths_beyond_the_context_of_the_model_are_refused(
    setting: str, scaling: dict[str, Any] | None, context: int, tmp_path: Path
):
    path = qwen_like(tmp_path)
    shape = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(shape | ({"rope_scaling": scaling} if scaling else {})))
    engine = {"sampler.engine.name": "vllm"} if setting == "sampler.engine.context" else {}

    def check(value: int) -> None:
        settings = {"model.path": path, **engine, setting: value}
        config = load(TrainConfig, None, [Override(*each, "command line") for each in settings.items()]).config
        require_context(config, load_architecture(path))

    first_refused = context + 1 if engine else context
    check(first_refused - 1)
    with pytest.raises(
        ConfigError, match=rf"^{setting} = {first_refused}: .*model\.path, which is {context} "
    ) as error:
        check(first_refused)
    check(int(str(error.value).partition(f"Fix: {setting}=")[2].partition(",")[0]))


def test_an_engine_cannot_have_more_context_than_the_embedded_policy():
    config = config_of(sampler={"engine": {"name": "vllm", "context": 300}})
    with pytest.raises(ConfigError, match=r"sampler\.engine\.context = 300: at most the context of model\.tiny"):
        require_context(config, policy_architecture(config))


def test_a_batch_whose_cache_exceeds_the_memory_is_refused_with_the_largest_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Keys and values of a response of 1024 tokens take 1024 x 57,344 bytes.
    monkeypatch.setattr(preflight_module.os, "sysconf", lambda name: 4096 if "SIZE" in name else (16 << 30) // 4096)
    model = {"path": qwen_like(tmp_path), "dtype": "bfloat16", "device": "cpu"}
    sampler = {"max_new_tokens": 1024, "engine": {"name": "transformers", "batch_size": 256}}
    with pytest.raises(ConfigError, match=r"batch_size = 256: 256 responses of 1024 tokens have 14\.00 GiB") as error:
        require_batch_that_fits(config_of(model=model, sampler=sampler))
    fits = int(str(error.value).partition("Fix: sampler.engine.batch_size=")[2].partition(",")[0])
    assert 0 < fits < 256
    for rows, is_fine in ((fits, True), (fits + 1, False)):
        config = config_of(model=model, sampler=sampler | {"engine": {"name": "transformers", "batch_size": rows}})
        with nullcontext() if is_fine else pytest.raises(ConfigError, match="batch_size"):
            require_batch_that_fits(config)


def test_no_batch_fits_beside_weights_that_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preflight_module.os, "sysconf", lambda name: 4096 if "SIZE" in name else (4 << 30) // 4096)
    with pytest.raises(ConfigError, match="Fix: a smaller model"):
        require_batch_that_fits(config_of(model={"path": qwen_like(tmp_path), "device": "cpu"}))


def test_a_batch_is_not_larger_than_what_a_step_asks_of_a_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preflight_module.os, "sysconf", lambda name: 4096 if "SIZE" in name else (16 << 30) // 4096)
    model = {"path": qwen_like(tmp_path), "dtype": "bfloat16", "device": "cpu"}
    require_batch_that_fits(config_of(model=model, problems_per_step=8, group_size=2))


@pytest.mark.parametrize(
    ("pools", "address"),
    [({"main": {"memory_gb": 1}}, ""), ({"main": {"executor": "ray"}}, "head:6379")],
    ids=["the plan is checked against memory_gb", "samplers run elsewhere"],
)
def test_the_memory_of_this_machine_is_not_always_what_counts(
    pools: dict[str, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preflight_module.os, "sysconf", lambda name: 1)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    require_batch_that_fits(config_of(model={"path": qwen_like(tmp_path)}, pools=pools))


def test_a_step_of_vllm_has_a_token_of_each_response():
    engine = {"name": "vllm", "batch_size": 256, "batch_tokens": 128}
    with pytest.raises(ConfigError, match=r"batch_size = 256: .* Fix: sampler\.engine\.batch_tokens=8192"):
        require_batch_that_fits(config_of(sampler={"engine": engine}))
    require_batch_that_fits(config_of(sampler={"engine": engine | {"batch_tokens": 256}}))


def test_weights_of_models_with_other_names_for_their_numbers_are_counted(tmp_path: Path):
    shape = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257}
    (tmp_path / "config.json").write_text(json.dumps(shape | {"tie_word_embeddings": True}))
    assert count_weights(str(tmp_path)) == pytest.approx(124e6, rel=0.3)


def test_a_pretrained_model_is_checked_before_it_is_loaded_and_everything_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shape = TinyModelConfig(hidden_size=512, layers=5, heads=8, vocabulary=300)
    policy = build_tiny_policy(shape, ["some words, some words"], seed=0, device="cpu")
    save_model(Policy(policy.model.bfloat16(), policy.tokenizer), tmp_path / "model")
    monkeypatch.setattr("autoclave.compose.warm_start.load_policy", lambda *words, **more: pytest.fail("loaded"))
    words = (f"model.path={tmp_path / 'model'}", "model.dtype=bfloat16", "algorithm.name=ppo")
    wrong = ("critic.optimizer.learning_rate=2e-3", "sampler.max_new_tokens=500")
    ended = CliRunner().invoke(train, [*words, *wrong, "--out", str(tmp_path / "run")])
    assert isinstance(ended.exception, InputError)
    said = str(ended.exception).splitlines()
    assert said[0] == "4 things stand in the way of this run:"
    for line, place in zip(said[1:], ("sampler.max_new_tokens", "problems", "critic.optim", "optimizer"), strict=True):
        assert line.startswith(f"- {place}")
        assert "Fix: " in line
    assert not (tmp_path / "run").exists()


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


def test_what_several_checks_find_is_reported_once():
    with pytest.raises(InputError, match=r"^no such folder$"):
        report([fails(InputError("no such folder")), fails(InputError("no such folder"))])


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


class MissingEngineConfig(EngineSettings):
    """Settings of an engine whose package has no entry point for the engine."""

    name: Literal["missing"] = "missing"


class MissingTaskConfig(TaskSettings):
    """Settings of a task whose package has no entry point for the task."""

    name: Literal["missing"] = "missing"


def test_an_engine_and_a_task_that_no_package_has_are_refused_before_any_work(tmp_path: Path):
    config = TrainConfig(sft=SftConfig(steps=0))
    sampler = config.sampler.model_copy(update={"engine": MissingEngineConfig()})
    config = config.model_copy(update={"sampler": sampler, "task": MissingTaskConfig()})
    with pytest.raises(HostError) as raised:
        preflight(config, tmp_path / "run")
    assert "Fix: install the package that has the entry point missing in autoclave.engines" in str(raised.value)
    assert "Fix: install the package that has the entry point missing in autoclave.tasks" in str(raised.value)
