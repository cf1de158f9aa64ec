"""By which way weights get to samplers."""

from __future__ import annotations

from autoclave.workers.weights.routes import Endpoint, Route, choose_routes

TRAINER = Endpoint("here", 1, "")
ON_GPU = Endpoint("here", 1, "A")


def routes(
    trainer: Endpoint, *samplers: Endpoint, sharing: tuple[str, ...] = (), may_alias: bool = False
) -> list[Route]:
    named = {str(number): endpoint for number, endpoint in enumerate(samplers)}
    return list(choose_routes(trainer, named, sharing_pool=frozenset(sharing), may_alias=may_alias).values())


def test_samplers_of_the_trainers_process_use_its_own_weights_only_where_they_may():
    assert routes(TRAINER, TRAINER, may_alias=True) == [Route.ALIAS]
    assert routes(TRAINER, TRAINER) == [Route.MEMORY]
    assert routes(TRAINER, TRAINER, Endpoint("here", 2, ""), may_alias=True) == [Route.MEMORY, Route.MEMORY]


def test_another_process_maps_memory_and_another_host_fetches():
    assert routes(TRAINER, Endpoint("here", 2, ""), Endpoint("there", 3, "")) == [Route.MEMORY, Route.BUCKETS]


def test_gpus_share_memory_or_receive_a_broadcast():
    same, other, apart = Endpoint("here", 2, "A"), Endpoint("here", 3, "B"), Endpoint("there", 4, "A")
    assert routes(ON_GPU, same, other, apart) == [Route.DEVICE, Route.BROADCAST, Route.BROADCAST]


def test_groups_of_one_pool_cannot_meet_in_a_broadcast():
    assert routes(ON_GPU, Endpoint("here", 3, "B"), sharing=("0",)) == [Route.MEMORY]


def test_one_sampler_without_a_gpu_brings_all_to_the_memory_of_the_host():
    assert routes(ON_GPU, Endpoint("here", 2, "A"), Endpoint("here", 3, "")) == [Route.MEMORY, Route.MEMORY]
