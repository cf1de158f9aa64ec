"""Dry runs: recipes in miniature, by the code that trains them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from transformers import GraniteConfig, PretrainedConfig, Qwen2Config, Starcoder2Config

from autoclave.cli.main import cli
from autoclave.compose.dry_run.miniature import LONGEST, shrunk, write_parts
from autoclave.compose.dry_run.table import Findings, Row, Run, changes, check_recipe, describe, rows_of
from autoclave.config import SftConfig, TrainConfig, load, parse_override
from autoclave.core import ConfigError, DataError, HostError, InputError
from autoclave.models import load_critic, load_policy, load_reward_model

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
TRAINING = [path for path in RECIPES if path.stem.partition("-")[0] not in ("curate", "evaluate", "benchmark")]
EVERYTHING: dict[str, Any] = {
    "problems": {"name": "files", "train": "absent/train.jsonl", "heldout": "absent/heldout.jsonl"},
    "model": {"path": "absent/model-70b", "chat_template": "{% for m in messages %}{{ m.content }}\n{% endfor %}>"},
    "sft": {"epochs": 3, "batch_tokens": 4096},
    "task": {"tests": "longest:15", "reward": "fraction"},
    "algorithm": {"name": "ppo", "kl_coefficient": 0.02},
    "critic": {"path": "absent/critic"},
    "reward_model": {"path": "absent/judge"},
    "teacher": {"path": "absent/teacher"},
    "optimizer": {"learning_rate": 1e-5},
    "length_schedule": {
        "stages": [{"max_new_tokens": 8192}, {"max_new_tokens": 16384}, {"max_new_tokens": 24576}],
        "advance": {"name": "steps", "steps": [300, 500]},
    },
    "steps": 1000,
    "problems_per_step": 128,
    "schedule": {"name": "one_off_pipeline"},
    "sampler": {"engine": {"name": "vllm", "context": 40000, "cache_mb": 40960, "tensor_parallel": 2}},
    "evaluation": {"max_new_tokens": 32000, "every": 50},
    "trainer": {"lora": {"rank": 8}, "activation_checkpointing": True, "cpu_offload": True},
    "pools": {"main": {"executor": "ray", "devices_per_process": 2}, "apart": {"executor": "ray"}},
    "workers": {"critic": "apart"},
    "loggers": ["wandb"],
}
"""A recipe for machines and a model that are not here, with most of what a recipe can have."""


def recipe(folder: Path, **changed: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(EVERYTHING | changed))
    return path


def config_of(path: Path, *settings: str) -> TrainConfig:
    return load(TrainConfig, path, [parse_override(text) for text in settings]).config


def dry_run(path: Path, folder: Path, *words: str) -> dict[str, Any]:
    """What `autoclave train --dry-run --json` prints, in a process of its own that does not wait for the hub."""
    command = [sys.executable, "-m", "autoclave", "train", str(path), "--dry-run", "--json", *words]
    with tempfile.TemporaryDirectory() as short:  # paths of Ray's sockets are limited to 107 bytes
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TMPDIR": short}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def states(table: dict[str, Any]) -> dict[str, str]:
    return {row["part"]: row["state"] for row in table["parts"]}


# --- Runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_recipe_for_a_cluster_trains_in_miniature_and_every_part_is_accounted_for(tmp_path: Path):
    found = dry_run(recipe(tmp_path), tmp_path)
    parts = states(found)
    for part in (
        "warm start", "length schedule", "schedule", "algorithm", "critic", "reference", "reward model", "judge",
        "trainer.lora", "publish", "evaluation", "checkpoints", "pools.main", "pools.apart",
    ):  # fmt: skip
        assert parts[part] == "exercised", found
    for part in ("model", "critic.path", "reward_model.path", "teacher.path", "problems", "response length"):
        assert parts[part] == "replaced"
    for part in ("tensor-parallel samplers", "trainer.cpu_offload", "GPUs", "loggers"):
        assert parts[part] == "not exercised"
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.glob("autoclave-dry-run-*"))


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_vllm_samples_in_a_dry_run_of_a_recipe_that_names_it(tmp_path: Path):
    assert states(dry_run(recipe(tmp_path), tmp_path))["engine"] == "exercised"


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRAINING if "vllm" in path.read_text()])
def test_vllm_samples_in_the_dry_run_of_every_recipe_that_names_it(path: Path, tmp_path: Path):
    config, parts = config_of(path), states(dry_run(path, tmp_path))
    assert config.sampler.engine.name == "vllm"
    assert parts["engine"] == "exercised"
    assert_learned(config, parts)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRAINING])
def test_every_recipe_dry_runs(path: Path, tmp_path: Path):
    assert_learned(config_of(path), states(dry_run(path, tmp_path)))


def assert_learned(config: TrainConfig, parts: dict[str, str]) -> None:
    """Assert that a dry run exercised what every recipe has, and what this one has."""
    learned = {"schedule", "algorithm", "publish", "evaluation", "checkpoints", "judge"}
    learned |= {f"pools.{name}" for name in config.pools}
    learned |= {"alignment"} if config.alignment else set()
    learned |= {"length schedule"} if config.length_schedule else set()
    assert {part: parts[part] for part in learned} == dict.fromkeys(learned, "exercised"), parts


# --- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in TRAINING])
def test_a_miniature_keeps_what_is_not_size(path: Path, tmp_path: Path):
    config = config_of(path)
    small = shrunk(config, tmp_path)
    for kept in (
        "seed",
        "algorithm",
        "schedule",
        "optimizer",
        "critic.optimizer",
        "task",
        "publish",
        "judge",
        "sandbox",
    ):
        before, after = config, small
        for name in kept.split("."):
            before, after = getattr(before, name), getattr(after, name)
        assert before == after, kept
    assert {pool.executor for pool in small.pools.values()} == {pool.executor for pool in config.pools.values()}
    assert bool(small.model.path) == bool(config.model.path)
    assert small.steps <= 12


def test_a_miniature_reaches_the_last_stage_and_keeps_the_proportions_of_lengths(tmp_path: Path):
    small = shrunk(config_of(recipe(tmp_path)), tmp_path)
    assert small.length_schedule is not None
    assert small.length_schedule.limits == (LONGEST // 3, LONGEST * 2 // 3, LONGEST)
    assert small.length_schedule.fewest_steps < small.steps - 1  # also before the last step, which is a resumption
    assert small.longest_evaluated == 32000 * LONGEST // 24576


@pytest.mark.parametrize("executor", ["spawn", "ray"])
def test_pools_of_many_processes_keep_two_so_that_models_are_sharded(executor: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    pools = {name: {"executor": executor, "processes": 16, "devices_per_process": 8} for name in ("main", "apart")}
    trainer = {"sharding": "zero2"}
    small = shrunk(config_of(recipe(tmp_path, pools=pools, trainer=trainer)), tmp_path)
    assert [pool.processes for pool in small.pools.values()] == [2, 2]
    assert small.trainer.sharding == "zero2"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    small = shrunk(config_of(recipe(tmp_path, pools=pools, trainer=trainer)), tmp_path)
    assert [pool.processes for pool in small.pools.values()] == [1, 1]


def test_an_engine_that_is_not_installed_is_stood_in_for_in_the_table(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("autoclave.compose.dry_run.miniature.find_spec", lambda name: None)
    monkeypatch.setattr("autoclave.compose.dry_run.table.find_spec", lambda name: None)
    config = config_of(recipe(tmp_path))
    small = shrunk(config, tmp_path)
    assert small.sampler.engine.name == "transformers"
    [row] = [row for row in rows_of(run_of(config, small)) if row.part == "engine"]
    assert row == Row("engine", "replaced", "transformers for vllm: vllm is not installed here")


def test_vllm_samples_where_it_is_installed(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("autoclave.compose.dry_run.miniature.find_spec", lambda name: object())
    config = config_of(recipe(tmp_path))
    small = shrunk(config, tmp_path)
    assert small.sampler.engine.name == "vllm"
    assert small.sampler.engine.batch_size == 8
    [row] = [row for row in rows_of(run_of(config, small)) if row.part == "engine"]
    assert row == Row("engine", "exercised", "vllm")


def test_every_setting_that_differs_is_listed(tmp_path: Path):
    config = config_of(recipe(tmp_path))
    small = shrunk(config, tmp_path)
    listed = {path: (before, after) for path, before, after in changes(config, small)}
    assert listed["steps"] == ("1000", str(small.steps))
    assert listed["trainer.cpu_offload"] == ("true", "false")
    assert set(listed) >= {"model.path", "problems.train", "sampler.engine.name", "evaluation.max_new_tokens"}
    assert "steps: 1000 -> " in describe([Row("a", "exercised", "b")], config, small)


# --- Models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Qwen2Config, Starcoder2Config])
def test_models_are_of_the_family_that_the_recipe_names(family: type[PretrainedConfig], tmp_path: Path, monkeypatch):
    monkeypatch.setattr("autoclave.compose.dry_run.miniature._LEARNS", SftConfig(steps=1))
    config = shrunk(config_of(recipe(tmp_path)), tmp_path)
    write_parts(config, tmp_path, family())
    policy = load_policy(config.model.path, device="cpu")
    assert policy.model.config.model_type == family.model_type
    assert sum(weights.numel() for weights in policy.model.parameters()) < 300_000
    assert policy.tokenizer.chat_template == EVERYTHING["model"]["chat_template"]
    assert load_policy(config.teacher.path, device="cpu").model.config.model_type == family.model_type
    assert load_critic(config.critic.path).model.config.model_type == family.model_type
    assert load_reward_model(config.reward_model.path).model.config.num_labels == 1


def test_a_reward_model_of_a_family_without_classifier_is_an_error_with_a_fix(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("autoclave.compose.dry_run.miniature._LEARNS", SftConfig(steps=1))
    config = shrunk(config_of(recipe(tmp_path)), tmp_path)
    with pytest.raises(ConfigError, match=r"no sequence classifier of granite\. Fix: reward_model\.path= "):
        write_parts(config, tmp_path, GraniteConfig())


def test_adapters_of_a_family_that_is_not_known_are_on_all_layers(tmp_path: Path):
    config = config_of(recipe(tmp_path, trainer={"lora": {"targets": ["c_fc"]}}))
    for is_llama, targets in ((True, ()), (False, ("c_fc",))):
        lora = shrunk(config, tmp_path, is_llama=is_llama).trainer.lora
        assert lora is not None
        assert lora.targets == targets


# --- The table -------------------------------------------------------------------------------------------------------


def run_of(config: TrainConfig, small: TrainConfig, *events: dict[str, Any]) -> Run:
    return Run(config, small, events, {"sandbox_level": "sealed"}, Findings())


def test_what_did_not_happen_is_not_called_exercised(tmp_path: Path):
    config = config_of(recipe(tmp_path))
    small = shrunk(config, tmp_path)
    step = {"kind": "train", "step": 1, "critic/gradient_norm": 1.0}
    run = run_of(config, small, step)
    rows = {row.part: row.state for row in rows_of(run)}
    assert [rows[part] for part in ("schedule", "critic")] == ["exercised", "exercised"]
    assert [rows[part] for part in ("algorithm", "length schedule", "warm start", "evaluation")] == [
        "not exercised"
    ] * 4
    with_gradient = replace(run, events=[step | {"policy/gradient_norm": 0.5}])
    assert {row.part: row.state for row in rows_of(with_gradient)}["algorithm"] == "exercised"


# --- What is wrong with the recipe as it is --------------------------------------------------------------------------


def test_settings_that_cannot_work_end_a_dry_run_before_any_work(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = config_of(recipe(tmp_path), "sampler.engine.name=openai")
    with pytest.raises(ConfigError, match="openai"):
        check_recipe(config, tmp_path / "out")


def test_problem_files_that_are_here_are_read_to_the_end(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    files = {"name": "files", "train": str(tmp_path / "train.jsonl"), "heldout": str(tmp_path / "heldout.jsonl")}
    lines = [problem(number) for number in range(40)]
    (tmp_path / "heldout.jsonl").write_text(problem(99))
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    config = config_of(recipe(tmp_path, problems=files))
    assert check_recipe(config, tmp_path / "out").problems.startswith("40 to learn from and 1 held out were read")
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, '{"statement": "no tests"}']))
    with pytest.raises(DataError, match=r"train\.jsonl:41"):
        check_recipe(config, tmp_path / "out")
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, problem(99).replace('"p99"', '"other"')]))
    with pytest.raises(InputError, match="has the same tests"):
        check_recipe(config, tmp_path / "out")


def problem(number: int) -> str:
    tests = {"kind": "stdin", "cases": [{"input": "", "output": f"{number}\n"}]}
    plain = {"format": "autoclave-problem/1", "id": f"p{number}", "statement": f"Print {number}.", "tests": tests}
    return json.dumps(plain | {"solutions": [f"print({number})"]})


@pytest.mark.parametrize("cores", [1, 2, 12])
@pytest.mark.parametrize("shard_size", [0, 4])
def test_what_is_sharded_fits_the_processes_of_a_machine(cores: int, shard_size: int, tmp_path: Path, monkeypatch):
    pools = {name: {"executor": "spawn", "processes": 8} for name in ("main", "apart")}
    settings = {"critic_sharding": "zero3", "sharding": "zero2", "shard_size": shard_size}
    path = recipe(tmp_path, pools=pools, trainer=settings, sampler={})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    small = shrunk(config_of(path), tmp_path)
    assert small.trainer.critic_sharding == (None if cores == 1 else "zero3")
    assert {pool.processes for pool in small.pools.values()} == {min(cores, 2) if cores < 12 else 6}


def test_a_missing_package_is_no_judge_that_does_not_answer(tmp_path: Path, monkeypatch):
    def missing(config: TrainConfig) -> None:
        raise HostError("datasketch is not installed")

    (tmp_path / "mine.jsonl").write_text("{}\n")
    monkeypatch.setattr("autoclave.compose.dry_run.table.ProblemSets", missing)
    remote = {"backend": "remote", "remote": {"urls": ["http://127.0.0.1:9"], "patience_s": 0.5}}
    config = config_of(recipe(tmp_path, judge=remote, problems={"path": str(tmp_path / "mine.jsonl")}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HostError, match="datasketch"):
        check_recipe(config, tmp_path / "out")


def test_servers_that_do_not_answer_are_stood_in_for(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    remote = {"backend": "remote", "remote": {"urls": ["http://127.0.0.1:9"], "patience_s": 0.5}}
    config = config_of(recipe(tmp_path, judge=remote))
    found = check_recipe(config, tmp_path / "out")
    assert "http://127.0.0.1:9" in found.unreachable_judge
    assert shrunk(config, tmp_path, local_judge=True).judge.backend == "local"


def test_a_dry_run_resumes_nothing_and_writes_over_nothing(tmp_path: Path):
    path = recipe(tmp_path)
    ended = CliRunner().invoke(cli, ["train", str(path), "--dry-run", "--resume"])
    assert isinstance(ended.exception, ConfigError)
    ended = CliRunner().invoke(cli, ["train", str(path), "--dry-run", "--out", str(tmp_path)])
    assert isinstance(ended.exception, InputError)
    assert path.exists()
