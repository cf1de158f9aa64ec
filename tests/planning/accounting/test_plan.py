"""Counts and phases of a plan, by hand; and that it refuses what cannot be."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.config import (
    AdvanceAtStepsConfig,
    EvaluationConfig,
    GrpoConfig,
    LengthScheduleConfig,
    LengthStageConfig,
    LoraConfig,
    ModelConfig,
    OneOffPipelineConfig,
    PoolConfig,
    ProblemFilesConfig,
    PublishConfig,
    SamplerConfig,
    TinyModelConfig,
    TrainConfig,
    TrainerConfig,
    TransformersEngineConfig,
    WorkersConfig,
)
from autoclave.core import ConfigError, InputError
from autoclave.core.files import read_jsonl
from autoclave.planning.accounting import sampling as sampling_module
from autoclave.planning.accounting.plan import (
    CHECKPOINT_FILE,
    LIBRARIES_AT_WORK,
    Lengths,
    on_device,
    plan_for,
    plan_run,
)
from autoclave.planning.accounting.shape import shape_of
from autoclave.planning.accounting.text import describe_plan
from autoclave.workers import Batch
from autoclave.workers.trainer.saved_state import FILE_BYTES

TINY = TinyModelConfig(hidden_size=8, layers=1, heads=2, vocabulary=300, context=64)
SHAPE = shape_of(ModelConfig(tiny=TINY))
WEIGHTS = 4 * (300 * 8 + 4 * 8 * 8 + 3 * 8 * 21 + 3 * 8)
"""Bytes: embedding, attention, feed-forward network of 8 * 8 // 3 = 21, three norms."""


def config(**settings: object) -> TrainConfig:
    given = {
        "steps": 5,
        "problems_per_step": 8,
        "group_size": 4,
        "minibatches": 2,
        "micro_batch_tokens": 100,
        "model": ModelConfig(tiny=TINY, device="cpu"),
        "sampler": SamplerConfig(max_new_tokens=10, engine=TransformersEngineConfig(batch_size=16)),
    }
    return TrainConfig(**(given | settings))


def test_counts_are_those_of_the_settings():
    plan = plan_run(config(), SHAPE, Lengths(10, 10))
    assert (plan.iterations, plan.prompts, plan.samples, plan.optimizer_steps) == (5, 8, 32, 2)
    assert plan.sampled_tokens == 320
    # 16 rows a minibatch, 100 // 20 = 5 rows at a time: 4 micro-batches of each
    assert (plan.micro_batch_rows, plan.micro_batches) == (5, 8)


def test_every_phase_holds_what_stays_and_what_is_its_own():
    (pool,) = plan_run(config(), SHAPE, Lengths(10, 10)).pools
    phases = {phase.name: phase.parts for phase in pool.phases}
    stays = {
        "weights (actor)": WEIGHTS,
        "optimizer": 2 * WEIGHTS,
        "libraries at work": LIBRARIES_AT_WORK,
    }
    assert list(phases) == ["sample", "log-probs", "update", "optimizer step", "publish", "checkpoint"]
    assert all(stays.items() <= parts.items() for parts in phases.values())
    # 16 rows of 20 tokens, with 2 to spare as others wait; keys and values of 8 float32.
    assert phases["sample"]["KV cache"] == 2 * 16 * (20 + 2) * 8 * 4
    assert phases["update"]["logits"] == 5 * 10 * 300 * 4 * 3
    assert phases["publish"] == stays  # samplers of this process compute with the trainer's own tensors
    with_gradients = [name for name, parts in phases.items() if "gradients" in parts]
    assert with_gradients == ["update", "optimizer step"]
    assert phases["optimizer step"]["work space"] == 2 * 300 * 8 * 4  # on a CPU one tensor at a time
    copied = {"copy for the checkpoint": 3 * 3 * WEIGHTS}  # and one file, twice, made from the copy
    assert phases["checkpoint"] == phases["sample"] | copied  # nothing is learnt before it is written
    assert pool.peak.name == "update"


def test_files_of_a_checkpoint_are_as_large_as_they_are_written():
    assert CHECKPOINT_FILE == FILE_BYTES


def test_one_micro_batch_has_no_gradients_of_others_beside_its_activations():
    (pool,) = plan_run(config(micro_batch_tokens=10_000), SHAPE, Lengths(10, 10)).pools
    phases = {phase.name: phase.parts for phase in pool.phases}
    assert "gradients" not in phases["update"]
    assert phases["optimizer step"]["gradients"] == WEIGHTS


# --- How the models that learn are held -----------------------------------------------------------------------------

SPAWN = {"pools": {"main": PoolConfig(executor="spawn", processes=4)}}
GPU = {"model": ModelConfig(tiny=TINY, device="cuda")}


def phases_of(**settings: object) -> dict[str, Mapping[str, int]]:
    (pool,) = plan_run(config(**settings), SHAPE, Lengths(10, 10)).pools
    return {phase.name: phase.parts for phase in pool.phases}


def test_processes_that_share_a_model_have_a_part_each_and_gather_what_they_compute():
    update, step = (phases_of(**SPAWN)[name] for name in ("update", "optimizer step"))
    assert (update["weights (actor)"], update["optimizer"]) == (WEIGHTS // 4, WEIGHTS // 2)
    assert step["gradients"] == WEIGHTS // 4
    assert update["gathered weights"] == WEIGHTS  # of this model, which has one layer
    assert update["memory to publish by"] == 2 * WEIGHTS // 4  # each writes its rows of two versions
    assert "weights (sampler)" not in update  # samplers of the same pool map that
    alone = phases_of(**SPAWN, trainer=TrainerConfig(sharding="none"))["update"]
    assert (alone["weights (actor)"], alone["optimizer"]) == (WEIGHTS, 2 * WEIGHTS)


def test_rows_are_split_over_the_processes_that_learn():
    plan = plan_run(config(**SPAWN), SHAPE, Lengths(10, 10))
    assert (plan.micro_batch_rows, plan.micro_batches) == (4, 2)  # 16 rows a minibatch, 4 for each process


def test_mixed_precision_halves_activations_and_no_weight():
    plain, mixed = (phases_of(trainer=TrainerConfig(mixed_precision=name))["update"] for name in ("none", "bfloat16"))
    assert mixed["weights (actor)"] == plain["weights (actor)"]
    assert mixed["activations"] < 0.7 * plain["activations"]
    assert mixed["gathered weights"] == WEIGHTS // 2


def test_activation_checkpointing_lowers_what_an_update_keeps():
    tiny = ModelConfig(tiny=TINY.model_copy(update={"layers": 8}), device="cpu")
    kept = [
        plan_run(
            config(model=tiny, trainer=TrainerConfig(activation_checkpointing=is_on)), shape_of(tiny), Lengths(10, 10)
        )
        .pools[0]
        .phases[2]
        .parts["activations"]
        for is_on in (False, True)
    ]
    assert kept[1] < 0.4 * kept[0]


def test_on_a_gpu_the_models_that_learn_leave_while_the_sampler_has_its_turn():
    assert "weights (actor)" in phases_of()["sample"]
    on_gpu = phases_of(**GPU)
    assert not {"weights (actor)", "optimizer"} & on_gpu["sample"].keys()
    assert {"weights (actor)", "optimizer"} <= on_gpu["publish"].keys()


def test_what_is_published_is_held_where_it_is_read():
    apart = {"pools": {"main": PoolConfig(), "other": PoolConfig(executor="spawn")}, "workers": {"sampler": "other"}}
    for settings, expected in (
        ({}, (0, 0)),
        ({"schedule": OneOffPipelineConfig()}, (2 * WEIGHTS, 0)),  # of one process, which maps what it writes
        (apart, (2 * WEIGHTS, 2 * WEIGHTS)),
        (apart | {"publish": PublishConfig(dtype="bfloat16")}, (WEIGHTS, WEIGHTS)),
        (apart | GPU, (WEIGHTS, 2 * WEIGHTS)),
        (GPU | {"schedule": OneOffPipelineConfig()}, (2 * WEIGHTS, 0)),
    ):
        pools = plan_run(config(**settings), SHAPE, Lengths(10, 10)).pools
        held = {part: size for pool in pools for part, size in pool.phases[-1].parts.items()}
        assert (held.get("memory to publish by", 0), held.get("weights (sampler)", 0)) == expected, settings


def test_samplers_that_are_sent_adapters_keep_the_frozen_weights():
    phases = phases_of(trainer=TrainerConfig(lora=LoraConfig(rank=2)))
    assert phases["sample"]["weights (sampler)"] == WEIGHTS
    assert not phases.get("take weights over", {}).get("weights on their way")
    assert 0 < phases["publish"]["memory to publish by"] < WEIGHTS


def test_offloaded_weights_are_not_on_the_device():
    update = phases_of(**GPU, trainer=TrainerConfig(cpu_offload=True))["update"]
    assert not {"weights (actor)", "optimizer", "gradients"} & update.keys()
    assert update["gathered weights"] == WEIGHTS


# --- Other parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("coefficient", "has_reference"), [(0.04, True), (0.0, False)])
def test_a_reference_is_there_if_the_algorithm_reads_it(coefficient: float, has_reference: bool):
    plan = plan_run(config(algorithm=GrpoConfig(kl_coefficient=coefficient)), SHAPE, Lengths(10, 10))
    assert all(("weights (reference)" in phase.parts) == has_reference for phase in plan.pools[0].phases)
    assert plan.learning_flops == (5 if has_reference else 4) * plan.sampling_flops


def test_adapters_alone_have_gradients_and_an_optimizer_and_the_frozen_weights_are_the_reference():
    lora = TrainerConfig(lora=LoraConfig(rank=2, targets=("q_proj", "down_proj")))
    algorithm = GrpoConfig(kl_coefficient=0.04)
    plan = plan_run(config(trainer=lora, algorithm=algorithm), SHAPE, Lengths(10, 10))
    adapter = 4 * 2 * ((8 + 8) + (21 + 8))  # bytes, rank, in + out of the two layers
    assert plan.learning_parameters == adapter // 4
    for phase in plan.pools[0].phases:
        held = {"weights (actor)": WEIGHTS, "adapter": adapter, "optimizer": 2 * adapter}
        assert held.items() <= phase.parts.items()
        assert "weights (reference)" not in phase.parts
    phases = {phase.name: phase.parts for phase in plan.pools[0].phases}
    assert phases["optimizer step"]["work space"] == 4 * 2 * 2 * 21
    assert phases["publish"]["memory to publish by"] == 2 * adapter
    assert "weights on their way" not in phases["publish"]  # no sums of weights and adapter
    assert plan.learning_flops == 4 * plan.sampling_flops  # forward for each of three, and one backward


def test_adapters_of_a_half_precision_model_are_counted_in_single_precision():
    settings = {"trainer": TrainerConfig(lora=LoraConfig(rank=2))}
    model = ModelConfig(tiny=TINY, device="cpu", dtype="bfloat16")
    whole, half = (plan_run(c, SHAPE, Lengths(10, 10)) for c in (config(**settings), config(model=model, **settings)))
    for name in ("adapter", "optimizer"):
        assert half.pools[0].phases[0].parts[name] == whole.pools[0].phases[0].parts[name]


def test_adapters_on_layers_that_the_model_does_not_have_cannot_be_planned():
    with pytest.raises(
        ConfigError, match=r"trainer\.lora\.targets: 'c_fc' is no linear layer of this model; known are"
    ):
        plan_run(config(trainer=TrainerConfig(lora=LoraConfig(targets=("c_fc",)))), SHAPE, Lengths(10, 10))


def test_the_sampler_on_a_pool_of_its_own_leaves_the_trainer():
    pools = {"train": PoolConfig(), "sample": PoolConfig(executor="spawn")}
    workers = WorkersConfig(actor="train", sampler="sample")
    together = plan_run(config(), SHAPE, Lengths(10, 10)).pools[0]
    apart = {pool.name: pool for pool in plan_run(config(pools=pools, workers=workers), SHAPE, Lengths(10, 10)).pools}
    assert [phase.name for phase in apart["sample"].phases] == ["sample"]
    memory_to_publish_by = 2 * WEIGHTS
    assert apart["train"].peak.total == together.peak.total + memory_to_publish_by


def test_the_width_of_numbers_halves_what_is_made_of_them():
    model = ModelConfig(tiny=TINY, device="cpu", dtype="bfloat16")
    whole, half = (plan_run(c, SHAPE, Lengths(10, 10)).pools[0] for c in (config(), config(model=model)))
    for name in ("weights (actor)", "optimizer", "KV cache"):
        assert half.phases[0].parts[name] * 2 == whole.phases[0].parts[name]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 400))
def test_planned_micro_batches_are_those_that_batches_are_cut_into(prompt: int, response: int, most: int):
    rows = 16
    pairs = [(np.zeros(prompt, np.int64), np.zeros(response, np.int64))] * rows
    batch = Batch.from_sequences(pairs, rows={}, responses={})
    parts = list(batch.micro_batches(most))
    shape = shape_of(ModelConfig(tiny=TinyModelConfig(context=200)))
    plan = plan_run(config(micro_batch_tokens=most), shape, Lengths(prompt, response))
    assert plan.micro_batch_rows == max(len(part) for part in parts)
    assert plan.micro_batches == 2 * len(parts)


def test_what_does_not_fit_into_the_context_is_refused_with_the_fix():
    with pytest.raises(InputError, match=r"prompts of 60 and responses of 10 .* context of 64; lower sampler\.max_new"):
        plan_for(config(), prompt_tokens=60)


def test_without_lengths_a_prompt_takes_what_the_response_leaves():
    assert plan_for(config()).lengths == Lengths(54, 10)
    assert plan_for(config(), response_tokens=4).lengths == Lengths(60, 4)


def test_memory_is_planned_for_the_last_stage_and_for_longer_evaluations():
    stages = (LengthStageConfig(max_new_tokens=10), LengthStageConfig(max_new_tokens=20))
    length_schedule = LengthScheduleConfig(stages=stages, advance=AdvanceAtStepsConfig(steps=(2,)))
    sampler = SamplerConfig(engine=TransformersEngineConfig(batch_size=16))
    last = config(sampler=sampler, length_schedule=length_schedule)
    assert plan_for(last, prompt_tokens=10) == plan_run(last, SHAPE, Lengths(10, 20))
    longer = config(sampler=sampler, length_schedule=length_schedule, evaluation=EvaluationConfig(max_new_tokens=40))
    plan = plan_for(longer, prompt_tokens=10)
    phases = {phase.name: phase.parts for phase in plan.pools[0].phases}
    as_long = {phase.name: phase.parts for phase in plan_run(longer, SHAPE, Lengths(10, 40)).pools[0].phases}
    assert phases["evaluate"] == as_long["sample"] != phases["sample"]
    assert phases["update"] != as_long["update"]
    assert "responses of 20 tokens, of 40 in evaluations;" in describe_plan(plan)
    with pytest.raises(InputError, match=r"responses of 40 .* lower evaluation\.max_new_tokens"):
        plan_for(longer, prompt_tokens=30)


def test_an_evaluation_samples_all_held_out_problems(tmp_path: Path):
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text("{}\n" * 3)
    files = ProblemFilesConfig(train=heldout, heldout=heldout)
    run = config(
        evaluation=EvaluationConfig(samples=1, final_samples=4), problems=files, group_size=2, problems_per_step=2
    )
    (pool,) = plan_run(run, SHAPE, Lengths(10, 10)).pools
    (evaluated,) = [phase.parts for phase in pool.phases if phase.name == "evaluate"]
    assert evaluated["KV cache"] == 2 * 3 * (4 + 1) * 20 * 8 * 4  # with a greedy response to each


def test_a_file_of_problems_is_read_once_however_often_a_run_is_planned(tmp_path: Path, monkeypatch):
    path, read = tmp_path / "problems.jsonl", list[Path]()
    path.write_text("{}\n" * 20)
    monkeypatch.setattr(
        sampling_module, "read_jsonl", lambda path, what: (read.append(path), read_jsonl(path, what))[1]
    )
    run = config(problems=ProblemFilesConfig(path=path, heldout_share=0.25))
    for _ in range(5):
        plan_run(run, SHAPE, Lengths(10, 10))
    assert read == [path]
    os.utime(path, ns=(1, 1))  # it was changed
    plan_run(run, SHAPE, Lengths(10, 10))
    assert read == [path] * 2


def test_a_device_that_is_left_open_is_a_gpu_for_a_pretrained_model(tmp_path: Path):
    here = "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    open_device = config(model=ModelConfig(tiny=TINY))
    assert plan_for(open_device) == plan_for(on_device(open_device, here))
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    pretrained = config(model=ModelConfig(path=str(tmp_path)))
    assert plan_for(pretrained) == plan_for(on_device(pretrained, "cuda")) != plan_for(on_device(pretrained, "cpu"))


QWEN = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}


def test_the_text_has_every_phase_and_says_where_it_fits():
    text = describe_plan(plan_for(config()))
    for words in (
        "optimizer step",
        "KV cache",
        "pool main (actor, sampler; devices: 1)",
        "On the CPU: ",
        "fits this machine",
    ):
        assert words in text


def test_a_gpu_that_is_too_small_is_told_by_how_much():
    large = TinyModelConfig(hidden_size=4096, layers=32, heads=32, vocabulary=32000, context=4096)
    text = describe_plan(plan_for(config(model=ModelConfig(tiny=large, device="cuda"))))
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "no (" in lines["L4"]
    assert "fits (" in lines["B200"]
