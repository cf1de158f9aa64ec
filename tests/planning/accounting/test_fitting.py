"""Memory by the rule of each engine, whether a plan fits on a GPU, what would make it fit, and how long it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoclave.config import (
    ModelConfig,
    OneOffPipelineConfig,
    PoolConfig,
    SamplerConfig,
    SglangEngineConfig,
    TinyModelConfig,
    TrainConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
    WorkersConfig,
)
from autoclave.planning.accounting.fitting import ASSUMED_MFU, USABLE_SHARE, fits, rates_on, smallest_change
from autoclave.planning.accounting.plan import Lengths, Phase, RunPlan, plan_run
from autoclave.planning.accounting.shape import shape_of
from autoclave.planning.accounting.speed import GPUS
from autoclave.planning.accounting.text import describe_plan

GPU = next(gpu for gpu in GPUS if gpu.name == "A100 80 GB")
LENGTHS = Lengths(1000, 1000)
APART = {
    "pools": {"main": PoolConfig(executor="ray", processes=2), "apart": PoolConfig(executor="ray", processes=2)},
    "workers": WorkersConfig(sampler="apart"),
}


def config(engine: object, **settings: object) -> TrainConfig:
    tiny = TinyModelConfig(hidden_size=1024, layers=24, heads=16, vocabulary=32000, context=4096)
    given = {
        "model": ModelConfig(tiny=tiny, device="cuda", dtype="bfloat16"),
        "sampler": SamplerConfig(engine=engine),
        "problems_per_step": 64,
        "group_size": 8,
    }
    return TrainConfig(**(given | settings))


def plan_of(run: TrainConfig) -> RunPlan:
    return plan_run(run, shape_of(run.model), LENGTHS)


def sampling(run: TrainConfig) -> Phase:
    return next(phase for pool in plan_of(run).pools for phase in pool.phases if phase.name == "sample")


def test_the_cache_of_vllm_is_as_large_as_it_is_set_whatever_the_rows_are():
    found = [sampling(config(VllmEngineConfig(cache_mb=4096, batch_size=rows))) for rows in (16, 512)]
    assert [phase.parts["KV cache"] for phase in found] == [4 << 30, 4 << 30]
    whole = sampling(config(TransformersEngineConfig(batch_size=512)))
    assert whole.parts["KV cache"] == 2 * 512 * 2000 * 24 * 1024 * 2


def test_devices_that_sample_together_share_the_weights():
    alone, together = (config(VllmEngineConfig(tensor_parallel=parts), **APART) for parts in (1, 4))
    weights = 2 * shape_of(alone.model).parameters
    received = 2 * weights  # both buffers of a broadcast
    assert sampling(alone).parts["weights (sampler)"] == weights + received
    assert sampling(together).parts["weights (sampler)"] == weights // 4 + received
    assert [pool.devices for pool in plan_of(together).pools] == [2, 8]


def test_vllm_samples_at_most_batch_size_responses_side_by_side():
    for size in ({"cache_mb": 1 << 20}, {"gpu_memory_utilization": 0.9}):
        assert plan_of(config(VllmEngineConfig(batch_size=64, **size))).sampling.rows == 64


def test_a_server_samples_on_devices_of_its_own():
    phase = sampling(config(SglangEngineConfig(url="http://host:1", weights_folder="/dev/shm/w"), **APART))
    assert phase.parts.keys() <= {"weights (sampler)"}


def test_only_the_first_device_has_memory_to_publish_by():
    main, apart = plan_of(config(VllmEngineConfig(), **APART)).pools
    assert main.on_first_device == 2 * shape_of(config(VllmEngineConfig()).model).parameters
    assert apart.on_first_device == 0
    assert "of it on the first device alone" in describe_plan(plan_of(config(VllmEngineConfig(), **APART)))


def test_an_engine_that_takes_a_share_of_the_device_takes_it_beside_what_others_hold():
    phase = Phase("sample", {"weights (sampler)": 10, "KV cache": 5, "weights (reward model)": 7}, share=0.5)
    assert phase.total_on(20) == 22  # its parts are more than its share
    assert phase.total_on(100) == 7 + 50


def test_a_plan_that_does_not_fit_is_told_the_fewest_settings_that_make_it_fit():
    run = config(TransformersEngineConfig(batch_size=512))
    plan = plan_of(run)
    assert not any(fits(pool, GPU) for pool in plan.pools)
    change = smallest_change(run, plan, GPU)
    assert change == ["sampler.engine.batch_size=256"]
    assert "sampler.engine.batch_size=256" in describe_plan(plan, run)
    small = config(TransformersEngineConfig(batch_size=256))
    assert all(fits(pool, GPU) for pool in plan_of(small).pools)
    assert smallest_change(small, plan_of(small), GPU) == []
    assert plan_of(small).pools[0].peak.total <= USABLE_SHARE * GPU.memory


def test_a_model_that_is_too_large_for_a_gpu_whatever_is_set_has_no_known_change():
    tiny = TinyModelConfig(hidden_size=16384, layers=80, heads=128, vocabulary=32000, context=4096)
    run = config(VllmEngineConfig(), model=ModelConfig(tiny=tiny, device="cuda", dtype="bfloat16"))
    assert smallest_change(run, plan_of(run), GPU) is None


@pytest.mark.parametrize("schedule", [None, OneOffPipelineConfig()])
def test_an_iteration_takes_what_is_sampled_and_learned_or_the_longer_of_both(schedule: OneOffPipelineConfig | None):
    settings = APART | ({"schedule": schedule} if schedule else {})
    plan = plan_of(config(VllmEngineConfig(cache_mb=16384), **settings))
    rates = rates_on(plan, GPU)
    sampling_s = plan.sampled_tokens / rates.sampled_tokens_per_s
    learning_s = plan.learning_flops / (2 * GPU.peak_flops * ASSUMED_MFU)
    expected = max(sampling_s, learning_s) if schedule else sampling_s + learning_s
    assert rates.iteration_s == pytest.approx(expected)
    assert rates.hours == pytest.approx(plan.iterations * expected / 3600)


def test_decoding_is_as_fast_as_memory_is_read():
    plan = plan_of(config(VllmEngineConfig(cache_mb=16384), **APART))
    twice = replace(GPU, bandwidth=2 * GPU.bandwidth)
    slow, fast = rates_on(plan, GPU), rates_on(plan, twice)
    assert 1.5 < fast.sampled_tokens_per_s / slow.sampled_tokens_per_s <= 2
    assert fast.learned_tokens_per_s == slow.learned_tokens_per_s
