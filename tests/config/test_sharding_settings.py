"""How each worker group shards its model, and settings of it that have no effect."""

from __future__ import annotations

import pytest

from autoclave.config import PoolConfig, PpoConfig, TrainConfig, TrainerConfig, WorkersConfig

FOUR = {"pools": {"main": PoolConfig(executor="spawn", processes=4)}}
PPO = {"algorithm": PpoConfig()}


def test_each_group_shards_as_the_actor_does_unless_it_has_a_setting_of_its_own():
    trainer = TrainConfig(**FOUR, **PPO, trainer=TrainerConfig(sharding="zero2", critic_sharding="zero3")).trainer
    assert (trainer.sharding, trainer.of("critic").sharding, trainer.of("reference").sharding) == (
        "zero2",
        "zero3",
        "zero2",
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 4), ({"sharding": "none"}, 1), ({"shard_size": 2}, 2), ({"sharding": "zero2", "shard_size": 8}, 4)],
)
def test_a_copy_of_a_model_is_split_over_a_shard_group(settings: dict, expected: int):
    assert TrainerConfig(**settings).parts(4) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PPO | {"trainer": TrainerConfig(critic_sharding="zero2")}, "critic_sharding = zero2: is ignored, because"),
        (FOUR | {"trainer": TrainerConfig(critic_sharding="zero2")}, "critic_sharding = zero2: .* has no critic"),
        (FOUR | {"trainer": TrainerConfig(shard_size=3)}, r"shard_size = 3: must divide pools\.main\.processes = 4"),
        ({"trainer": TrainerConfig(shard_size=2)}, "shard_size = 2: is ignored, because every model"),
        (
            FOUR | {"trainer": {"lora": {}, "reference_sharding": "zero2"}},
            "reference_sharding = zero2: with trainer.lora the actor without its adapter is the reference",
        ),
        ({"trainer": {"sharding": "none", "shard_size": 2}}, "shard_size = 2: is ignored with sharding = none"),
    ],
)
def test_a_setting_without_an_effect_is_an_error(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**settings)


def test_pools_apart_are_split_each_by_its_own_processes():
    pools = FOUR["pools"] | {"apart": PoolConfig(executor="spawn", processes=2)}
    trainer = TrainerConfig(sharding="zero2", critic_sharding="zero3", shard_size=4)
    assert TrainConfig(**PPO, pools=pools, workers=WorkersConfig(critic="apart"), trainer=trainer)
