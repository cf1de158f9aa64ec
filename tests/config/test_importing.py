"""Settings of other frameworks become a recipe that means the same, or says where it does not."""

from __future__ import annotations

import ast
import json
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autoclave.config import TrainConfig, load
from autoclave.config.complaints import _all_paths  # pyright: ignore[reportPrivateUsage]
from autoclave.config.foreign_files import read_foreign
from autoclave.config.frameworks import frameworks, reason_without
from autoclave.config.importing import Imported, convert, detect
from autoclave.config.recipe import read_recipe
from autoclave.core import ConfigError, InputError
from tests.config import coming_from

VERL = """\
#!/usr/bin/env bash
# a run of the style of DAPO
set -x
MODEL=${MODEL:-"Qwen/Qwen3-4B"}
responses=16
export max_prompt=$((1024 * 2))
max_response=$(( 1024 * (4 + 4) ))
ray job submit --address="http://127.0.0.1:8265" -- python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files="['$DATA/train.parquet']" \\
    data.train_batch_size=64 data.max_response_length=${max_response} \\
    actor_rollout_ref.model.path="${MODEL}" \\
    actor_rollout_ref.rollout.n=$responses \\
    actor_rollout_ref.actor.ppo_mini_batch_size=16 \\
    actor_rollout_ref.actor.clip_ratio_low=0.2 \\
    actor_rollout_ref.actor.clip_ratio_high=0.28 \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((max_prompt + max_response)) \\
    ++algorithm.filter_groups.enable=True \\
    +reward.reward_kwargs.overlong_buffer_cfg.enable=True \\
    +reward.reward_kwargs.overlong_buffer_cfg.len=2048 \\
    trainer.logger=['console','wandb'] trainer.nnodes=2 trainer.total_training_steps=300 $@ 2>&1 | tee log
"""
TRL = """\
model_name_or_path: Qwen/Qwen3-4B
use_vllm: true
num_generations: 16
per_device_train_batch_size: 8
gradient_accumulation_steps: 32
steps_per_generation: 128
max_completion_length: 8192
max_steps: 1200
epsilon_high: 0.28
warmup_ratio: 0.1
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 0.1}
reward_funcs: [code]
learning_rat: 1.0e-5
"""
OPENRLHF = """\
python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --pretrain Qwen/Qwen3-4B --advantage_estimator group_norm \\
   --rollout_batch_size 64 --n_samples_per_prompt 16 --train_batch_size 256 --eps_clip_low_high 0.2 0.28 \\
   --init_kl_coef 1e-3 --use_kl_loss --kl_estimator k3 --generate_max_len 8192 --actor_learning_rate 5e-7 --bf16 \\
   --enable_vllm_is_correction --vllm_is_truncated_threshold 0.5 5.0 --vllm_is_correction_type icepop
"""
OPENRLHF_DOTTED = """\
python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.model_name_or_path Qwen/Qwen3-4B \\
   --algo.advantage.estimator group_norm --rollout.batch_size 64 --rollout.n_samples_per_prompt 16 \\
   --train.batch_size 256 --actor.eps_clip_low_high 0.2 0.28 --algo.kl.init_coef 1e-3 --algo.kl.use_loss \\
   --algo.kl.estimator k3 --rollout.max_new_tokens 8192 --actor.adam.lr 5e-7 \\
   --algo.advantage.is_correction_enable --algo.advantage.is_correction_threshold 0.5 5.0 \\
   --algo.advantage.is_correction_type icepop
"""
PRIME_RL = """\
max_steps = 300
seq_len = 8192
[model]
name = "Qwen/Qwen3-4B"
[orchestrator]
batch_size = 1024
group_size = 16
[[orchestrator.train.env]]
name = "code"
[trainer.optim]
lr = 3e-6
[trainer.model.ac]
[trainer.loss]
kl_tau = 0.01
"""


def imported(folder: Path, name: str, text: str, framework: str | None = None, processes: int = 1) -> Imported:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = read_foreign(path)
    return convert(found, framework or detect(found), processes)


def of(framework: str, processes: int = 1, **settings: Any) -> Imported:
    return convert({name.replace("__", "."): value for name, value in settings.items()}, framework, processes)


def loaded(result: Imported, folder: Path) -> TrainConfig:
    path = folder / "recipe.yaml"
    path.write_text(result.recipe("elsewhere"), encoding="utf-8")
    return load(TrainConfig, path).config


# --- One file of each framework --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "run.sh",
            VERL,
            {
                "model.path": "Qwen/Qwen3-4B",
                "problems_per_step": 64,
                "group_size": 16,
                "minibatches": 4,
                "micro_batch_tokens": 10240,
                "sampler.max_new_tokens": 8192,
                "algorithm.name": "dapo",
                "algorithm.clip_lower": 0.2,
                "algorithm.clip_upper": 0.28,
                "algorithm.max_resamples": 3,
                "algorithm.overlong_buffer": 0.25,
                "optimizer.decay": "none",
                "optimizer.weight_decay": 0.01,
                "optimizer.betas": [0.9, 0.999],
                "loggers": ["wandb"],
                "steps": 300,
                "sft.steps": 0,
            },
        ),
        (
            "grpo.yaml",
            TRL,
            {
                "problems_per_step": 64,
                "group_size": 16,
                "minibatches": 4,
                "steps": 300,
                "sampler.max_new_tokens": 8192,
                "algorithm.name": "grpo_plus",
                "algorithm.clip_lower": 0.2,
                "algorithm.clip_upper": 0.28,
                "algorithm.kl_coefficient": 0.0,
                "algorithm.mask_overlong": False,
                "algorithm.correction": {"name": "masked", "level": "sequence", "lower": 0.0, "upper": 3.0},
                "optimizer.learning_rate": 1e-6,
                "optimizer.decay": "cosine",
                "optimizer.final_fraction": 0.1,
                "optimizer.warmup_steps": 120,
                "trainer.mixed_precision": "bfloat16",
                "seed": 42,
            },
        ),
        (
            "run.sh",
            OPENRLHF,
            {
                "problems_per_step": 64,
                "minibatches": 4,
                "algorithm.name": "grpo_plus",
                "algorithm.mask_overlong": False,
                "algorithm.kl_coefficient": 0.001,
                "algorithm.clip_upper": 0.28,
                "algorithm.correction": {"name": "masked", "level": "token", "lower": 0.5, "upper": 5.0},
                "optimizer.betas": [0.9, 0.95],
                "optimizer.decay": "cosine",
                "optimizer.final_fraction": 0.1,
            },
        ),
        (
            "rl.toml",
            PRIME_RL,
            {
                "problems_per_step": 64,
                "minibatches": 1,
                "sampler.max_new_tokens": 8192,
                "algorithm.name": "dr_grpo",
                "schedule.name": "asynchronous",
                "schedule.max_staleness": 8,
                "trainer.activation_checkpointing": True,
                "optimizer.learning_rate": 3e-6,
            },
        ),
    ],
    ids=["verl", "trl", "openrlhf", "prime-rl"],
)
def test_a_file_of_another_framework_becomes_a_recipe_that_loads(
    tmp_path: Path, name: str, text: str, expected: dict[str, Any]
):
    result = imported(tmp_path, name, text, processes=2 if name == "grpo.yaml" else 1)
    if name == "grpo.yaml":
        expected |= {"problems_per_step": 128, "minibatches": 4}
    assert {path: result.settings.get(path) for path in expected} == expected
    config = loaded(result, tmp_path)
    assert read_recipe(tmp_path / "recipe.yaml") == result.tree()
    assert config.problems.name == "none"


def test_both_spellings_of_openrlhf_mean_the_same(tmp_path: Path):
    old, new = imported(tmp_path, "old.sh", OPENRLHF), imported(tmp_path, "new.sh", OPENRLHF_DOTTED)
    assert old.settings == new.settings


def test_the_report_names_what_has_no_counterpart_what_is_unknown_and_what_is_to_be_set(tmp_path: Path):
    verl = imported(tmp_path, "run.sh", VERL)
    assert any(entry.startswith("data.train_files = ") for entry in verl.to_set)  # $DATA is not in the file
    assert any(entry.startswith("trainer.nnodes = 2: hardware") for entry in verl.missing)
    assert any("clip_ratio_c = 3.0 (default there)" in entry for entry in verl.missing)
    trl = imported(tmp_path, "grpo.yaml", TRL)
    assert trl.unknown == ["learning_rat = 1e-05: did you mean learning_rate?"]
    assert any(entry.startswith("reward_funcs = ") for entry in trl.missing)
    assert any(entry.startswith("deviation of a group") for entry in trl.differs)
    head = [line for line in trl.recipe("grpo.yaml").splitlines() if line.startswith("#")]
    assert "# - learning_rat = 1e-05: did you mean learning_rate?" in head


# --- Nothing is dropped, and whatever is written loads ---------------------------------------------------------------


@pytest.mark.parametrize("framework", frameworks())
def test_a_setting_that_is_given_is_in_the_recipe_or_in_the_report(framework: str):
    plain = convert({}, framework).settings
    for theirs, row in frameworks()[framework].settings.items():
        if row.unit or not row.ours.startswith(
            ("sampler", "critic", "checkpoint", "evaluation", "trainer", "schedule")
        ):
            continue  # what is converted together with others has tests of its own
        values: list[Any] = [*row.map] or ["odd", 3, 0.25, [1, 2]]
        for value in values:
            result = convert({theirs: value}, framework)
            reported = any(theirs in entry for entry in [*result.differs, *result.missing])
            is_default = value == row.default or (row.map and row.map[value] == plain.get(row.ours))
            assert reported or is_default or result.settings.get(row.ours) != plain.get(row.ours), (theirs, value)


ODD = ("odd", -1, 0, 1, 1e9, True, [], [1], 0.5, "$X")


def give_or_refuse(framework: str, settings: dict[str, Any], folder: Path | None = None) -> None:
    """The recipe of any settings loads; where there is none, the error names the framework."""
    try:
        result = convert(settings, framework)
    except ConfigError as error:
        if frameworks()[framework].title not in str(error):
            pytest.fail(f"{settings}: {error}")
    else:
        assert folder is None or loaded(result, folder)


@pytest.mark.parametrize("framework", frameworks())
def test_any_value_gives_a_recipe_that_loads_or_an_error_that_names_the_framework(framework: str):
    for number, theirs in enumerate(frameworks()[framework].settings):
        give_or_refuse(framework, {theirs: ODD[number % len(ODD)]})


@pytest.mark.soak
@pytest.mark.parametrize("framework", frameworks())
def test_any_two_values_give_a_recipe_that_loads(framework: str, tmp_path: Path):
    chance = random.Random(0)
    names = list(frameworks()[framework].settings)
    for _ in range(300):
        give_or_refuse(framework, {name: chance.choice(ODD) for name in chance.sample(names, 3)}, tmp_path)


def test_unknown_settings_are_listed_with_the_nearest_name():
    result = of("verl", trainer__tset_freq=3, some__thing={"else": 1}, trainer__nnodes=2)
    assert result.unknown == ["trainer.tset_freq = 3: did you mean trainer.test_freq?", 'some.thing = {"else": 1}']
    assert [entry for entry in result.missing if entry.startswith("trainer.nnodes = 2: hardware")]


def test_the_report_repeats_no_secret():
    result = of("trl", hub_token="hf_abc", odd_password="hf_abc", run_name="$X")
    assert "hf_abc" not in result.recipe("a.yaml")
    assert "odd_password = ..." in result.unknown
    assert "hf_abc" not in of("openrlhf", use_wandb="hf_abc").recipe("a.sh")


def test_a_setting_without_effect_is_reported():
    result = of("verl", algorithm__adv_estimator="grpo", actor_rollout_ref__rollout__n=8, critic__optim__lr=1e-5)
    assert "critic.optim.lr = 1e-05: has no effect here beside the other settings" in result.missing
    assert not any("has no effect" in entry for entry in of("verl", trainer__total_epochs=3).missing)
    assert not any("critic.optim" in entry for entry in of("verl", critic__optim__lr=2e-5).missing)


def test_a_value_that_a_recipe_cannot_have_is_taken_out_and_reported(tmp_path: Path):
    result = of("trl", model_name_or_path="a/b", temperature=0.0, save_total_limit=0)
    assert loaded(result, tmp_path).sampler.temperature == 1.0
    assert any(entry.startswith("temperature = 0.0: sampler.temperature = 0.0: must") for entry in result.missing)
    assert any(entry.startswith("save_total_limit = 0: checkpoint.keep = 0: must") for entry in result.missing)


# --- What means something else ---------------------------------------------------------------------------------------


GROUP = {"actor_rollout_ref.rollout.n": 8, "algorithm.adv_estimator": "grpo"}
AGGREGATION = "actor_rollout_ref.actor.loss_agg_mode"
STD = "algorithm.norm_adv_by_std_in_grpo"
KL = "actor_rollout_ref.actor.use_kl_loss"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
TRL_BATCHES = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "num_generations": 8}


@pytest.mark.parametrize(
    ("framework", "settings", "name"),
    [
        ("verl", {}, "ppo"),
        ("verl", GROUP, "grpo_plus"),
        ("verl", GROUP | {AGGREGATION: "seq-mean-token-mean"}, "grpo"),
        ("verl", GROUP | {AGGREGATION: "seq-mean-token-sum-norm", STD: False}, "dr_grpo"),
        ("verl", GROUP | {"algorithm.filter_groups.enable": True}, "dapo"),
        ("verl", GROUP | {"algorithm.filter_groups.enable": True, KL: True}, "grpo_plus"),  # dapo has no KL term
        ("verl", GROUP | {LOSS: "gspo", AGGREGATION: "seq-mean-token-mean"}, "gspo"),
        ("verl", GROUP | {LOSS: "cispo"}, "cispo"),
        ("verl", GROUP | {"algorithm.adv_estimator": "rloo"}, "rloo"),
        ("verl", GROUP | {"algorithm.adv_estimator": "reinforce_plus_plus"}, "reinforce_plus_plus"),
        ("trl", {}, "grpo_plus"),
        ("trl", {"loss_type": "grpo"}, "grpo"),
        ("trl", {"loss_type": "dr_grpo", "scale_rewards": False}, "dr_grpo"),
        ("trl", {"loss_type": "dr_grpo", "scale_rewards": "none"}, "dr_grpo"),
        ("trl", {"loss_type": "cispo", "epsilon_high": 5.0}, "cispo"),
        ("trl", {"loss_type": "grpo", "importance_sampling_level": "sequence"}, "gspo"),
        ("trl-rloo", {}, "rloo"),
        ("openrlhf", {}, "ppo"),
        ("openrlhf", {"advantage_estimator": "reinforce"}, "reinforce_plus_plus"),
        ("openrlhf", {"advantage_estimator": "dr_grpo", "n_samples_per_prompt": 8}, "dr_grpo"),
        ("prime-rl", {"orchestrator.group_size": 8}, "dr_grpo"),
        ("prime-rl", {}, "reinforce_plus_plus"),  # groups of one, which nothing here compares
        ("verl", {"algorithm.adv_estimator": "grpo"}, "reinforce_plus_plus"),
    ],
)  # fmt: skip
def test_the_algorithm_is_the_one_that_computes_the_same(framework: str, settings: dict[str, Any], name: str):
    assert convert(settings, framework).settings["algorithm.name"] == name


def test_an_algorithm_that_is_only_near_is_reported_with_both_meanings():
    result = convert(GROUP | {"algorithm.adv_estimator": "remax"}, "verl")
    assert any("adv_estimator" in entry and "remax" in entry and " here: " in entry for entry in result.differs)
    result = convert(GROUP | {AGGREGATION: "seq-mean-token-sum"}, "verl")
    assert any(
        "seq-mean-token-sum" in entry and "mean there: over responses, of the sum" in entry for entry in result.differs
    )
    result = convert({"loss_type": "sapo"}, "trl")
    assert any('loss_type = "sapo"' in entry and "loss there: sapo" in entry for entry in [*result.differs])


def test_a_bound_on_a_clipped_weight_is_counted_from_one():
    trl = of("trl", loss_type="cispo", epsilon_high=5.0).settings
    assert (trl["algorithm.clip_lower"], trl["algorithm.clip_upper"]) == (1.0, 4.0)
    verl = convert(
        GROUP | {LOSS: "cispo", "actor_rollout_ref.actor.clip_ratio_high": 4.0},
        "verl",
    ).settings
    assert (verl["algorithm.clip_lower"], verl["algorithm.clip_upper"]) == (0.2, 4.0)


def test_both_bounds_of_the_ratio_are_taken_and_one_that_is_lost_is_reported():
    assert of("trl", epsilon=0.1).settings["algorithm.clip_upper"] == 0.1  # epsilon_high is epsilon unless set
    result = of("trl", epsilon=0.1, epsilon_high=0.3, loss_type="dr_grpo", scale_rewards="none")
    assert result.settings["algorithm.clip"] == 0.1
    assert any("epsilon_high = 0.3: dr_grpo has one bound" in entry for entry in result.differs)
    verl = convert(GROUP | {"actor_rollout_ref.actor.clip_ratio": 0.3}, "verl")
    assert verl.settings["algorithm.clip_lower"] == verl.settings["algorithm.clip_upper"] == 0.3
    assert any(
        entry.startswith("actor_rollout_ref.actor.clip_ratio = 0.3: there it is read only") for entry in verl.differs
    )


@pytest.mark.parametrize(
    ("framework", "settings", "expected", "report"),
    [
        ("verl", GROUP, {"kl_coefficient": 0.0}, None),
        ("verl", GROUP | {KL: True}, {"kl_coefficient": 0.001}, None),
        (
            "verl",
            GROUP | {KL: True, "actor_rollout_ref.actor.kl_loss_type": "mse"},
            {"kl_coefficient": 0.001},
            "there a term of the loss, k2; of grpo_plus here a term of the loss k3",
        ),
        ("verl", {"algorithm.use_kl_in_reward": True}, {"kl_coefficient": 0.001, "kl_estimator": "k1"}, None),
        (
            "verl",
            GROUP | {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.01},
            {"kl_coefficient": 0.01},
            "KL with coefficient 0.01: there in the reward, k1; of grpo_plus here a term of the loss k3",
        ),
        ("trl", {"beta": 0.04, "loss_type": "grpo"}, {"kl_coefficient": 0.04, "kl_estimator": "k3"}, None),
        ("trl-rloo", {}, {"kl_coefficient": 0.05, "kl_estimator": "k1"}, None),
        ("openrlhf", {}, {"kl_coefficient": 0.01, "kl_estimator": "k1"}, None),
        (
            "openrlhf",
            {"advantage_estimator": "group_norm", "n_samples_per_prompt": 8},
            {"kl_coefficient": 0.01},
            "KL with coefficient 0.01: there in the reward, k1; of grpo_plus here a term of the loss k3",
        ),
        (
            "trl",
            {"beta": 0.04, "loss_type": "cispo", "epsilon_high": 5.0},
            {"kl_coefficient": None},
            "of cispo here none",
        ),
    ],
)
def test_the_kl_term_keeps_its_place_or_is_reported(
    framework: str, settings: dict[str, Any], expected: dict[str, Any], report: str | None
):
    result = convert(settings, framework)
    assert {name: result.settings.get(f"algorithm.{name}") for name in expected} == expected
    moved = [entry for entry in result.differs if entry.startswith("KL with coefficient")]
    assert not moved if report is None else report in moved[0]


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("verl", GROUP | {"data.train_batch_size": 64, "actor_rollout_ref.actor.ppo_mini_batch_size": 16}),
        ("trl", TRL_BATCHES | {"steps_per_generation": 8}),
        ("trl", TRL_BATCHES | {"generation_batch_size": 512}),
        ("openrlhf", {"rollout_batch_size": 64, "n_samples_per_prompt": 8, "train_batch_size": 128}),
    ],
)  # fmt: skip
def test_batches_are_counted_in_prompts_and_minibatches(framework: str, settings: dict[str, Any]):
    found = convert(settings, framework, processes=4).settings
    assert (found["problems_per_step"], found["group_size"], found["minibatches"]) == (64, 8, 4)


def test_minibatches_that_would_split_groups_are_rounded_and_reported():
    result = of("openrlhf", rollout_batch_size=100, n_samples_per_prompt=8, train_batch_size=128)
    assert result.settings["minibatches"] == 5  # 6.25 steps there; the largest divisor of 100 below
    assert "minibatches: 800 rollouts in steps of 128 there; here 5 steps, each of whole groups" in result.differs


def test_a_batch_that_is_trained_on_again_is_reported():
    assert "num_iterations = 4: each batch is trained on once" in of("trl", num_iterations=4).missing
    assert not any("trained on once" in entry for entry in of("trl").missing)


def test_warm_up_is_counted_in_optimizer_steps():
    verl = of("verl", trainer__total_training_steps=100, actor_rollout_ref__actor__optim__lr_warmup_steps=10)
    assert verl.settings["optimizer.warmup_steps"] == 40  # steps of sampling there, of 4 optimizer steps each
    share = of("verl", trainer__total_training_steps=100, actor_rollout_ref__actor__optim__lr_warmup_steps_ratio=0.1)
    assert share.settings["optimizer.warmup_steps"] == 40
    assert of("trl", max_steps=100, warmup_steps=7).settings["optimizer.warmup_steps"] == 7
    assert any("optimizer.warmup_steps: 0.03" in entry for entry in of("openrlhf").to_set)


def test_importance_sampling_needs_all_of_the_distribution(tmp_path: Path):
    result = of("trl", use_vllm=True, top_p=0.9)
    assert loaded(result, tmp_path).algorithm.correction.name == "none"
    assert "importance sampling between sampler and trainer: not with top_p below 1" in result.missing


def test_a_mask_of_sequences_that_weighs_tokens_is_reported():
    given = {"enable_vllm_is_correction": True, "vllm_is_correction_type": "seq-mask-tis"}
    result = convert(given, "openrlhf")
    expected = {"name": "masked", "level": "geometric", "lower": 0.5, "upper": 5.0}
    assert result.settings["algorithm.correction"] == expected
    assert any("weighs by token there" in entry for entry in result.differs)
    plain = convert({"enable_vllm_is_correction": True}, "openrlhf")
    assert not any("weighs by token there" in entry for entry in plain.differs)


@pytest.mark.parametrize(
    ("framework", "settings", "rank"),
    [
        ("verl", {}, None),
        ("verl", {"actor_rollout_ref.model.lora_rank": 32}, 32),
        ("trl", {"lora_r": 32}, None),  # use_peft decides there
        ("trl", {"use_peft": True}, 16),
        ("trl", {"use_peft": True, "lora_r": 32}, 32),
        ("openrlhf", {"lora_rank": 8}, 8),
        ("prime-rl", {"trainer.model.lora": {}}, 16),
        ("prime-rl", {"trainer.model.lora.rank": 4}, 4),
    ],
)
def test_adapters_are_trained_where_they_are_there(framework: str, settings: dict[str, Any], rank: int | None):
    assert convert(settings, framework).settings.get("trainer.lora.rank") == rank


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (2.0, {"name": "truncated", "level": "token", "upper": 2.0}),
        ("0.5_5.0", {"name": "masked", "level": "token", "lower": 0.5, "upper": 5.0}),
    ],
)
def test_the_threshold_of_a_rollout_correction_is_an_upper_bound_or_two(threshold: Any, expected: dict[str, Any]):
    keys = {"rollout_is": "token", "rollout_is_threshold": threshold}
    found = convert({f"algorithm.rollout_correction.{key}": value for key, value in keys.items()}, "verl").settings
    assert found["algorithm.correction"] == expected


# --- Defaults that a user does not set -------------------------------------------------------------------------------


def _defaults(path: str) -> dict[str, Any]:
    """Defaults of the dataclass in an installed file, without importing what it needs."""
    package, _, inner = path.partition("/")
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    tree = ast.parse((Path(spec.submodule_search_locations[0]) / inner).read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            for keyword in node.value.keywords:
                if keyword.arg == "default" and isinstance(keyword.value, (ast.Constant, ast.UnaryOp)):
                    found[node.target.id] = ast.literal_eval(keyword.value)
    return found


@pytest.mark.parametrize(("framework", "file"), [("trl", "grpo_config.py"), ("trl-rloo", "rloo_config.py")])
def test_the_defaults_of_trl_are_those_of_the_installed_classes(framework: str, file: str):
    pytest.importorskip("trl", exc_type=ImportError) if find_spec("trl") is None else None
    real = (
        _defaults("transformers/training_args.py")
        | _defaults("trl/trainer/base_config.py")
        | _defaults(f"trl/trainer/{file}")
    )
    elsewhere = {
        "model_name_or_path",
        "use_peft",
        "lora_r",
        "lora_alpha",
        "lora_target_modules",
        "warmup_ratio",
        "lr_scheduler_kwargs.min_lr",
        "lr_scheduler_kwargs.min_lr_rate",
    }
    for theirs, row in frameworks()[framework].settings.items():
        if theirs in elsewhere:
            continue  # of the script's ModelConfig, of a dictionary, or of older versions
        assert theirs in real, theirs
        if theirs in ("bf16", "eval_steps", "run_name", "report_to"):
            continue  # bf16: None is true where fp16 is not; the others mean "not set"
        there = real[theirs]
        assert row.default == there or (row.default is None and there in (None, "none", True)), (theirs, there)


# --- Files -----------------------------------------------------------------------------------------------------------


def test_references_between_settings_are_resolved(tmp_path: Path):
    text = """
actor_rollout_ref:
  rollout:
    n: 8
    max_num_batched_tokens: "${oc.select:data.max_response_length,512}"
    max_num_seqs: "${oc.select:a.b,64}"
  actor: {ppo_mini_batch_size: "${own.sizes.mini}", clip_ratio: "${missing.key}"}
own: {sizes: {mini: 8}}
data: {train_batch_size: 32, max_response_length: 2048}
"""
    result = imported(tmp_path, "config.yaml", text)
    assert result.settings["sampler.engine.batch_tokens"] == 2048
    assert result.settings["sampler.engine.batch_size"] == 64
    assert result.settings["minibatches"] == 4
    assert any(entry.startswith('actor_rollout_ref.actor.clip_ratio = "${missing.key}"') for entry in result.to_set)


def test_options_may_stand_in_arrays_of_a_script(tmp_path: Path):
    text = """
ARGS=(--pretrain "a/b" --n_samples_per_prompt 4)
MORE=(
  --rollout_batch_size 32
  --adam_betas 0.9 0.99
)
python -m openrlhf.cli.train_ppo_ray "${ARGS[@]}" "${MORE[@]}" --seed 3 "$@" > log.txt
"""
    result = imported(tmp_path, "run.sh", text)
    assert (result.settings["group_size"], result.settings["problems_per_step"], result.settings["seed"]) == (4, 32, 3)
    assert result.settings["optimizer.betas"] == [0.9, 0.99]


@pytest.mark.parametrize("name", ["args.json", "words.json"])
def test_flags_may_stand_in_json(tmp_path: Path, name: str):
    flags: Any = {"pretrain": "a/b", "n_samples_per_prompt": 4, "init_kl_coef": 0.02}
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    result = imported(tmp_path, name, json.dumps(flags if name == "args.json" else words))
    assert (result.settings["group_size"], result.settings["algorithm.kl_coefficient"]) == (4, 0.02)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "group_size: 8\nsteps: 3", "no framework that is known"),
        ("a.yaml", "seed: 3", "the settings may be of "),
        ("a.yaml", "[1, 2]", "it has no settings"),
        ("a.yaml", "", "it has no settings"),
        ("a.toml", "a = ", "settings cannot be read"),
        ("a.json", "{", "settings cannot be read"),
        ("a.sh", "echo hello", "no option --name value and no override"),
        ("a.sh", "x --pretrain 'a", "No closing quotation"),
        ("a.sh", "x --seed $((1 +))", "is not a calculation"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(tmp_path: Path, name: str, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        imported(tmp_path, name, text)


def test_a_missing_file_is_bad_input(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        read_foreign(tmp_path / "none.yaml")


# --- The table -------------------------------------------------------------------------------------------------------


def test_every_row_of_the_table_leads_to_a_setting():
    known = {*_all_paths(TrainConfig), "algorithm.correction"}
    for framework in frameworks().values():
        for theirs, row in framework.settings.items():
            assert {row.ours, row.too or row.ours} <= known, theirs
            assert reason_without(theirs) is None or row.also or theirs in framework.names


def test_the_page_has_the_tables_of_the_data():
    page = coming_from.PAGE.read_text(encoding="utf-8")
    assert coming_from.written(page) == page, "run python -m tests.config.coming_from"
