"""What critic and reward model add to a plan, and that a pool that may not take so much is refused before it does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autoclave.config import (
    CriticConfig,
    DistillationAdvantageConfig,
    GrpoConfig,
    LoraConfig,
    PoolConfig,
    PpoConfig,
    RewardModelConfig,
    TeacherConfig,
    TrainConfig,
    TrainerConfig,
    WorkersConfig,
    load,
)
from autoclave.core import ConfigError, InputError
from autoclave.models import save_model
from autoclave.planning.accounting.fitting import check_memory, excess
from autoclave.planning.accounting.heads import head_parameters
from autoclave.planning.accounting.plan import Lengths, plan_for, plan_run
from autoclave.planning.accounting.shape import read_shape, shape_of
from autoclave.planning.accounting.speed import SequenceLengths, Throughput
from tests.planning.accounting.test_plan import SHAPE, WEIGHTS, config
from tests.training_parts import tiny_critic, tiny_policy, tiny_reward_model

GIB = 1 << 30
LENGTHS = Lengths(10, 10)
HEAD = 4 * 8
"""Bytes of a head without its one bias, on a trunk of 8 numbers."""
RECIPES = Path(__file__).parents[3] / "recipes"


def ppo(**settings: object) -> TrainConfig:
    return config(algorithm=PpoConfig(), **settings)


def test_a_critic_has_weights_gradients_and_moments_and_three_phases():
    (pool,) = plan_run(ppo(), SHAPE, LENGTHS).pools
    assert pool.workers == ("actor", "sampler", "reference", "critic")
    phases = {phase.name: phase.parts for phase in pool.phases}
    stays = {
        "weights (critic)": WEIGHTS + HEAD,
        "optimizer (critic)": 2 * (WEIGHTS + HEAD),
    }
    assert all(stays.items() <= parts.items() for parts in phases.values())
    assert list(phases)[-4:] == ["values", "critic update", "critic step", "checkpoint"]
    assert phases["checkpoint"]["copy for the checkpoint"] == 3 * 3 * (2 * WEIGHTS + HEAD)  # of the policy too
    assert "logits" not in phases["critic update"]
    assert phases["critic update"]["activations"] < phases["update"]["activations"]  # no states for logits
    (alone,) = plan_run(ppo(micro_batch_tokens=10_000), SHAPE, LENGTHS).pools
    assert "gradients (critic)" not in {phase.name: phase.parts for phase in alone.phases}["critic update"]


def test_parameters_of_a_trunk_with_a_head_are_those_of_the_real_model(tmp_path: Path):
    critic = tiny_critic()
    save_model(critic, tmp_path)
    assert head_parameters(read_shape(tmp_path)) == critic.model.num_parameters() - 1  # its bias


def test_without_a_critic_there_is_none_in_the_plan():
    (pool,) = plan_run(config(), SHAPE, LENGTHS).pools
    assert pool.workers == ("actor", "sampler")
    assert not any("critic" in part for phase in pool.phases for part in phase.parts)


def test_a_critic_on_a_pool_of_its_own_leaves_that_of_the_actor():
    pools = {"main": PoolConfig(), "apart": PoolConfig()}
    apart = ppo(pools=pools, workers=WorkersConfig(critic="apart"))
    together, (main, own) = plan_run(ppo(), SHAPE, LENGTHS).pools[0], plan_run(apart, SHAPE, LENGTHS).pools
    both, alone = ({phase.name: phase for phase in pool.phases} for pool in (together, main))
    # Gradients are freed before the actor's begin; what stays is copied for a checkpoint, and twice more as a file.
    assert alone["update"].total == both["update"].total - 3 * (WEIGHTS + HEAD)
    assert alone["checkpoint"].total == both["checkpoint"].total - 4 * 3 * (WEIGHTS + HEAD)
    assert own.workers == ("critic",)
    assert [phase.name for phase in own.phases] == ["values", "critic update", "critic step", "checkpoint"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sharding": "zero2"},
        {"activation_checkpointing": True},
        {"mixed_precision": "bfloat16"},
        {"lora": LoraConfig(rank=2)},
    ],
)
def test_a_critic_takes_what_the_policy_takes_whatever_the_settings_of_the_trainer(settings):
    pools = {"main": PoolConfig(executor="spawn", processes=2)}
    run = ppo(pools=pools, trainer=TrainerConfig(**settings))
    (pool,) = plan_run(run, SHAPE, LENGTHS).pools
    phases = {phase.name: phase.parts for phase in pool.phases}
    policy, critic = phases["update"], phases["critic update"]
    width = 2 if settings.get("mixed_precision") else 4
    states_for_logits = 8 * width * LENGTHS.response * plan_run(run, SHAPE, LENGTHS).micro_batch_rows
    assert critic["activations"] == policy["activations"] - states_for_logits
    assert critic["gathered weights"] == policy["gathered weights"]
    assert critic.get("gathered gradients") == policy.get("gathered gradients")
    policy, critic = phases["optimizer step"], phases["critic step"]
    assert critic.get("work space") == policy.get("work space")
    held = policy["weights (actor)"] + policy.get("adapter", 0)
    assert critic["weights (critic)"] == pytest.approx(held + HEAD / 2, abs=HEAD)


def test_a_reward_model_stays_on_the_gpu_while_the_sampler_has_its_turn(tmp_path: Path):
    save_model(tiny_reward_model(), tmp_path)
    device = config().model.model_copy(update={"device": "cuda"})
    run = config(model=device, reward_model=RewardModelConfig(path=str(tmp_path)))
    sample = plan_run(run, SHAPE, LENGTHS).pools[0].phases[0].parts
    assert sample["weights (reward model)"] == 4 * tiny_reward_model().model.num_parameters()
    assert "weights (actor)" not in sample


def test_a_reward_model_has_the_shape_of_its_own_folder(tmp_path: Path):
    save_model(tiny_reward_model(), tmp_path)
    weights = 4 * tiny_reward_model().model.num_parameters()
    pools = {"main": PoolConfig(), "apart": PoolConfig()}
    settings = config(
        reward_model=RewardModelConfig(path=str(tmp_path)), pools=pools, workers=WorkersConfig(reward_model="apart")
    )
    _, apart = plan_run(settings, SHAPE, LENGTHS).pools
    assert [phase.name for phase in apart.phases] == ["reward model"]
    assert apart.phases[0].parts["weights (reward model)"] == weights


def test_a_teacher_has_the_shape_of_its_folder(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    algorithm = GrpoConfig(kl_coefficient=0.0, advantage=DistillationAdvantageConfig())
    settings = config(algorithm=algorithm, teacher=TeacherConfig(path=str(tmp_path)))
    alone = config(algorithm=GrpoConfig(kl_coefficient=0.0))
    plan, plain = plan_run(settings, SHAPE, LENGTHS), plan_run(alone, SHAPE, LENGTHS)
    weights = plan.pools[0].phases[0].parts["weights (reference)"]
    assert weights == 4 * tiny_policy().model.num_parameters()
    assert "weights (reference)" not in plain.pools[0].phases[0].parts
    assert plain.learning_flops < plan.learning_flops


def test_a_critic_of_its_own_has_the_shape_of_its_folder(tmp_path: Path):
    save_model(tiny_critic(), tmp_path)
    settings = ppo(critic=CriticConfig(path=str(tmp_path)))
    (pool,) = plan_run(settings, SHAPE, LENGTHS).pools
    assert pool.phases[0].parts["weights (critic)"] == 4 * (tiny_critic().model.num_parameters() - 1)
    (tmp_path / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json: no such file; critic\.path must be"):
        plan_run(settings, SHAPE, LENGTHS)


def test_what_a_critic_computes_counts_four_forward_passes_without_logits():
    lengths = SequenceLengths(np.array([20]), np.array([10]))
    without, with_one = (Throughput(SHAPE, None, 2, critic).metrics(lengths, 1.0) for critic in (None, SHAPE))
    forward = 2 * 20 * SHAPE.layer_matrices + 4 * 20 * 20 * SHAPE.query_width
    assert with_one["model_flops_per_s"] - without["model_flops_per_s"] == pytest.approx(4 * forward)
    plan, other = plan_run(ppo(), SHAPE, LENGTHS), plan_run(config(algorithm=GrpoConfig()), SHAPE, LENGTHS)
    assert plan.learning_flops - other.learning_flops == pytest.approx(32 * 4 * forward)


# --- Limits --------------------------------------------------------------------------------------------------------


def capped(gib: float, *, splits: bool) -> TrainConfig:
    pools = {name: PoolConfig(memory_gb=gib) for name in (("main", "apart") if splits else ("main",))}
    return ppo(pools=pools, workers=WorkersConfig(critic="apart" if splits else ""))


def test_a_pool_that_needs_more_than_it_may_take_is_refused_and_the_groups_on_two_pools_are_not():
    (together,) = plan_for(ppo()).pools
    limit = (together.peak.total - 1) / GIB
    with pytest.raises(ConfigError) as caught:
        check_memory(capped(limit, splits=False))
    message = str(caught.value)
    assert message.startswith("pools.main.memory_gb = ")
    assert "its groups (actor, sampler, reference, critic) need " in message
    assert "(phase 'checkpoint', prompts of 54 and responses of 10 tokens)" in message
    assert message.endswith("; lower micro_batch_tokens, or move a group to a pool of its own (workers.critic)")
    check_memory(capped(limit, splits=True))
    check_memory(capped(together.peak.total / GIB, splits=False))
    check_memory(ppo())


def test_where_only_one_group_lives_none_can_be_moved():
    with pytest.raises(ConfigError, match=r"pools\.apart\.memory_gb.*; lower micro_batch_tokens$"):
        check_memory(
            ppo(
                pools={"main": PoolConfig(), "apart": PoolConfig(memory_gb=1e-6)}, workers=WorkersConfig(critic="apart")
            )
        )


def test_measured_peaks_are_added_over_the_processes_of_a_rank():
    half = GIB // 2
    own = {"actor": [(1, half), (2, half)], "critic": [(3, half), (4, half + 1)]}
    assert excess(capped(1.0, splits=False), {**own, "critic": [(3, half), (4, half)]}) == []
    (line,) = excess(capped(1.0, splits=False), own)
    assert line.startswith("pool main: the peaks of its groups (actor, critic) are 1.00 GiB together, more than")
    assert excess(capped(1.0, splits=True), own) == []


def test_groups_in_one_process_are_counted_once():
    inline = {"actor": [(1, GIB)], "sampler": [(1, GIB)]}
    assert excess(capped(1.0, splits=False), inline) == []


# --- Recipes -------------------------------------------------------------------------------------------------------


def test_the_recipe_for_starcoder2_has_its_size_and_fits_on_the_gpus_of_the_paper(tmp_path: Path):
    # As in the config.json of bigcode/starcoder2-3b.
    sizes = {
        "hidden_size": 3072,
        "intermediate_size": 12288,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "max_position_embeddings": 16384,
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "starcoder2", "use_bias": True} | sizes))
    recipe = load(TrainConfig, RECIPES / "ppo-apps-starcoder2-3b.yaml").config
    local = recipe.model_copy(update={"model": recipe.model.model_copy(update={"path": str(tmp_path)})})
    plan = plan_for(local, prompt_tokens=1024)
    assert shape_of(local.model).parameters == pytest.approx(3.03e9, rel=1e-3)
    assert [pool.workers for pool in plan.pools] == [("actor", "sampler"), ("reference", "critic")]
    check_memory(local)


def test_the_small_recipe_has_two_pools_on_ray():
    recipe = load(TrainConfig, RECIPES / "ppo-small.yaml").config
    assert {pool.executor for pool in recipe.pools.values()} == {"ray"}
    plan = plan_for(recipe)
    assert [pool.workers for pool in plan.pools] == [("actor", "sampler"), ("reference", "critic")]
