"""Settings of vLLM that contradict each other or the rest of a run are errors before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from autoclave.compose.workers import pools_of
from autoclave.config import (
    AsynchronousConfig,
    ModelConfig,
    PoolConfig,
    SamplerConfig,
    TrainConfig,
    VllmEngineConfig,
    WorkersConfig,
)

SPAWN = PoolConfig(executor="spawn", processes=2)


def config(*, cpu: bool = False, apart: bool = False, rest: dict[str, Any] | None = None, **engine: Any) -> TrainConfig:
    pools = {"main": SPAWN, "apart": SPAWN} if apart else {"main": SPAWN}
    return TrainConfig(
        sampler=SamplerConfig(engine=VllmEngineConfig(**engine)),
        model=ModelConfig(device="cpu" if cpu else "auto"),
        pools=pools,
        workers=WorkersConfig(sampler="apart" if apart else "main"),
        **(rest or {}),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cache_mb": 512, "gpu_memory_utilization": 0.5}, "are two sizes of the same cache; remove one"),
        ({"gpu_memory_utilization": 0.5, "cpu": True}, "model.device = cpu has no GPU; use sampler.engine.cache_mb"),
        ({"tensor_parallel": 2}, r"a process of pools\.main has 1 GPUs. Fix: a pool of its own"),
        ({"recompute_on_publish": False}, "no request runs at a publish with schedule.name = synchronous"),
        (
            {"recompute_on_publish": False, "rest": {"schedule": AsynchronousConfig(partial=False)}},
            "is ignored, because no request runs",
        ),
    ],
)
def test_a_setting_that_cannot_be_had_is_an_error(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        config(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"gpu_memory_utilization": 0.5},
        {"tensor_parallel": 2, "apart": True},
        {"tensor_parallel": 2, "cpu": True},
        {"recompute_on_publish": False, "rest": {"schedule": AsynchronousConfig()}},
    ],
)
def test_others_are_taken(settings: dict[str, Any]):
    assert config(**settings)


@pytest.mark.parametrize(("device", "expected"), [("cuda", 2), ("cpu", None)])
def test_each_sampler_of_a_pool_of_their_own_has_the_gpus_of_a_tensor_parallel_engine(device, expected, monkeypatch):
    settings = config(tensor_parallel=2, apart=True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "cuda")
    pools = pools_of(settings)
    assert list(pools) == ["main", "apart/0", "apart/1"]
    assert [pool.devices_per_process for pool in pools.values()] == [None, expected, expected]
