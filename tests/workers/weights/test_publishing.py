"""After a publish, samplers hold the trainer's weights bit for bit, whichever way these went."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from threading import Event

import numpy as np
import pytest
import torch

from autoclave.config import TrainerConfig
from autoclave.core import FaultError, InputError, WorkerDied
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.workers import Dispatch, ResourcePool, WorkerGroup, register
from autoclave.workers.executor import Executor
from autoclave.workers.sampler.pool import SamplerPool
from autoclave.workers.sampler.worker import SamplerWorker as Sampling
from autoclave.workers.spawn_executor import SpawnExecutor
from autoclave.workers.weights.buffer_descriptor import AS_TRAINED, Form
from autoclave.workers.weights.publisher import Publisher
from autoclave.workers.weights.routes import Endpoint, Route
from autoclave.workers.weights.sync_check import SyncCheck
from tests.training_parts import tiny_policy
from tests.workers.weights.parts import LeavingOut, SamplerWorker, SilentEngine, Trainer, begin, called, publish

BFLOAT16 = Form(torch.bfloat16)
DEADLINE_S = 100.0


class HangingSampler(SamplerWorker):
    """Does not answer before it may."""

    may_answer = Event()

    @register(Dispatch.ALL_TO_LIST)
    def weights_endpoint(self) -> Endpoint:
        self.may_answer.wait(DEADLINE_S)
        return super().weights_endpoint()


@contextmanager
def groups(
    make_trainer: Callable = Trainer,
    *make_samplers: Callable,
    executor: Callable[[], Executor | None] = lambda: None,
) -> Iterator[tuple[WorkerGroup, dict[str, WorkerGroup]]]:
    """A trainer, and samplers by name, each on a pool of its own."""
    pools = [ResourcePool("trainer", executor())]
    try:
        trainer = WorkerGroup(pools[0], make_trainer)
        samplers = {}
        for number, make in enumerate(make_samplers or (SamplerWorker,)):
            pools.append(ResourcePool(f"sampler {number}", executor()))
            samplers[f"sampler {number}"] = WorkerGroup(pools[-1], make)
        yield trainer, samplers
    finally:
        for pool in pools:
            pool.close()


def require_equal(trainer: WorkerGroup, sampler: WorkerGroup, version: int, dtype: torch.dtype | None = None) -> None:
    expected = trainer.plain_copy().result()
    stamped, held = sampler.held().result()
    assert stamped == version
    assert set(held) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(held[name], tensor.to(dtype or tensor.dtype).to(held[name].dtype)), name


def publish_and_compare(
    trainer: WorkerGroup, samplers: dict[str, WorkerGroup], form: Form = AS_TRAINED, *, may_alias: bool = False
) -> Publisher:
    """Three publishes, with learning between them."""
    publisher = Publisher(trainer, form, deadline_s=DEADLINE_S, may_alias=may_alias)
    begin(publisher, 4, samplers)
    for version in (5, 7, 8):  # some may be left out
        trainer.learn(version).result()
        publish(publisher, version, samplers)
        for sampler in samplers.values():
            require_equal(trainer, sampler, version, form.dtype)
    return publisher


# --- In one process


@pytest.mark.parametrize(
    ("trainer", "sampler", "form"),
    [
        ({}, {}, AS_TRAINED),
        ({}, {"dtype": torch.bfloat16}, BFLOAT16),
        ({}, {}, BFLOAT16),  # a sampler in float32 has the rounded weights
        ({"dtype": torch.bfloat16}, {"dtype": torch.bfloat16}, AS_TRAINED),
        ({"lora": True}, {}, AS_TRAINED),
        ({"lora": True}, {"dtype": torch.bfloat16}, BFLOAT16),
        ({"lora": True}, {}, Form(adapter_only=True)),
        ({"lora": True, "dtype": torch.bfloat16}, {"dtype": torch.bfloat16}, Form(adapter_only=True)),
    ],
)
def test_samplers_hold_what_the_trainer_holds(trainer: dict, sampler: dict, form: Form):
    with groups(partial(Trainer, **trainer), partial(SamplerWorker, **sampler)) as (group, samplers):
        publisher = publish_and_compare(group, samplers, form)
        assert publisher.routes == {"sampler 0": [Route.MEMORY]}


def test_a_weight_that_the_trainer_does_not_write_is_found_in_what_arrives():
    with groups() as (trainer, samplers):
        publisher = publish_and_compare(trainer, samplers)
        trainer.learn(9).result()
        trainer.leave_out(3).result()
        with pytest.raises(FaultError, match=r"1 of 21 weights \(model.*\) arrived here otherwise than the trainer"):
            publish(publisher, 9, samplers)


@pytest.mark.parametrize("form", [AS_TRAINED, BFLOAT16, Form(adapter_only=True)], ids=["whole", "rounded", "adapter"])
def test_a_weight_that_an_engine_does_not_take_over_is_named(form: Form):
    trainer = partial(Trainer, lora=form.adapter_only)
    with groups(trainer, partial(SamplerWorker, engine=LeavingOut)) as (group, samplers):
        publisher = Publisher(group, form, deadline_s=DEADLINE_S)
        begin(publisher, 1, samplers)
        group.learn(2).result()
        with pytest.raises(FaultError, match=r"1 of 21 weights \(model\.layers\.1\.self_attn\.v_proj\.weight\) in the"):
            publish(publisher, 2, samplers)


def test_an_engine_that_reports_no_weights_is_counted():
    with groups() as (trainer, samplers):
        assert publish_and_compare(trainer, samplers).unread == 0
    with groups(Trainer, partial(SamplerWorker, engine=SilentEngine)) as (trainer, samplers):
        assert publish_and_compare(trainer, samplers).unread == 21


def test_what_is_learnt_after_a_publish_is_not_what_samples():
    with groups() as (trainer, samplers):
        publisher = publish_and_compare(trainer, samplers)
        before = samplers["sampler 0"].held().result()[1]
        trainer.learn(1).result()
        after = samplers["sampler 0"].held().result()[1]
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
        assert publisher.version == 8


def test_an_idle_sampler_of_the_trainers_process_computes_with_its_own_tensors():
    with groups() as (trainer, samplers):
        publisher = publish_and_compare(trainer, samplers, may_alias=True)
        assert publisher.routes == {"sampler 0": [Route.ALIAS]}
        ours, theirs = (group._ranks._worker for group in (trainer, samplers["sampler 0"]))
        assert ours._model.lm_head.weight.data_ptr() == theirs._engine.policy.model.lm_head.weight.data_ptr()


@pytest.mark.parametrize(
    ("trainer", "form"), [({"lora": True}, AS_TRAINED), ({}, BFLOAT16), ({"lora": True}, Form(adapter_only=True))]
)
def test_weights_that_are_published_in_another_form_are_not_shared_with_the_trainer(trainer: dict, form: Form):
    with groups(partial(Trainer, **trainer)) as (group, samplers):
        assert publish_and_compare(group, samplers, form, may_alias=True).routes == {"sampler 0": [Route.MEMORY]}


def test_adapters_alone_of_a_model_without_any_are_refused():
    with groups() as (trainer, samplers), pytest.raises(ValueError, match="this model has none"):
        begin(Publisher(trainer, Form(adapter_only=True), deadline_s=DEADLINE_S), 1, samplers)


def test_versions_only_grow():
    with groups() as (trainer, samplers):
        publisher = Publisher(trainer, deadline_s=DEADLINE_S)
        with pytest.raises(RuntimeError, match="`begin` comes first"):
            publish(publisher, 1, samplers)
        begin(publisher, 3, samplers)
        for version in (2, 3):
            with pytest.raises(
                ValueError, match=f"version {version}: version 3 is out already, and versions only grow"
            ):
                publish(publisher, version, samplers)
        begin(publisher, 1, samplers)  # a run that goes back to a checkpoint
        require_equal(trainer, samplers["sampler 0"], 1)


def test_weights_that_do_not_fit_are_not_taken_over():
    with groups() as (trainer, samplers):
        publisher = Publisher(trainer, deadline_s=5)  # the trainer says who it waits for in the last fifth of it
        begin(publisher, 1, samplers)
        trainer.learn(1).result()
        samplers["sampler 0"].shrink().result()
        before = samplers["sampler 0"].held().result()
        with pytest.raises(InputError, match=r"shape \(32,\), the sampler's model has \(7,\)"):
            publish(publisher, 2, samplers)
        with pytest.raises(FaultError, match="still in use for version 1 by sampler 0"):  # which it still samples with
            publish(publisher, 3, samplers)
        after = samplers["sampler 0"].held().result()
        assert after[0] == before[0] == 1
        assert all(torch.equal(after[1][name], tensor) for name, tensor in before[1].items())


def test_a_sampler_that_does_not_answer_is_named():
    with groups(Trainer, HangingSampler, SamplerWorker) as (trainer, samplers):
        publisher = Publisher(trainer, deadline_s=2.5)  # which the others answer within
        with pytest.raises(FaultError, match=r"no answer from sampler 0 after 2\.5 s"):
            begin(publisher, 1, samplers)
        HangingSampler.may_answer.set()


def test_a_sampler_that_comes_later_gets_the_version_that_is_out_and_not_what_was_learnt_since():
    with groups(Trainer, SamplerWorker, SamplerWorker) as (trainer, samplers):
        publisher = Publisher(trainer, deadline_s=DEADLINE_S)
        late = samplers.pop("sampler 1")
        begin(publisher, 1, samplers)
        trainer.learn(2).result()
        publish(publisher, 2, samplers)
        out = trainer.plain_copy().result()
        trainer.learn(3).result()
        publisher.deliver(late, called(late))
        version, held = late.held().result()
        assert version == 2
        assert all(torch.equal(held[name], tensor) for name, tensor in out.items())
        publish(publisher, 3, samplers | {"sampler 1": late})
        require_equal(trainer, late, 3)


def test_one_that_is_released_is_not_waited_for_and_can_come_back():
    with groups(Trainer, SamplerWorker, SamplerWorker) as (trainer, samplers):
        publisher = publish_and_compare(trainer, samplers)
        gone = samplers.pop("sampler 1")
        publisher.release(gone, called(gone))
        for version in (9, 10, 11):  # more than there are slots
            trainer.learn(version).result()
            publish(publisher, version, samplers)
        publisher.deliver(gone, called(gone))
        require_equal(trainer, gone, 11)


def test_one_that_goes_on_with_an_old_version_is_named_when_its_memory_is_needed():
    with groups(Trainer, SamplerWorker, SamplerWorker) as (trainer, samplers):
        publisher = Publisher(trainer, deadline_s=5)
        begin(publisher, 1, samplers)
        del samplers["sampler 1"]
        publish(publisher, 2, samplers)
        with pytest.raises(FaultError, match="still in use for version 1 by sampler 1"):
            publisher.write(3)


# --- Through a pool of samplers


def make_sampler() -> Sampling:
    return Sampling(TransformersEngine(tiny_policy(1), batch_size=4))


def test_samplers_that_die_leave_and_come_sample_with_what_is_published():
    pools = [ResourcePool("trainer"), ResourcePool("sampler 0", SpawnExecutor([()])), ResourcePool("sampler 1")]
    try:
        trainer, *groups = map(WorkerGroup, pools, (Trainer, make_sampler, make_sampler))
        publisher = Publisher(trainer, deadline_s=DEADLINE_S)
        sync_check = SyncCheck([np.array([2, 40, 3])], temperature=1.0, tokens=3, limit=1e-4, deadline_s=DEADLINE_S)
        with closing(SamplerPool(groups[:1], restarts=1)) as sampler:

            def publish_and_probe(version: int) -> None:
                trainer.learn(version).result()
                publisher.write(version)
                sampler.update_weights(version, publisher).result(DEADLINE_S)
                sync_check.check(version, trainer, sampler)

            publisher.begin(0, sampler.groups)
            sampler.update_weights(0, publisher).result(DEADLINE_S)
            publish_and_probe(1)
            os.kill(groups[0]._ranks.process_ids[0], 9)
            sync_check.check(1, trainer, sampler)  # by the restarted one
            publish_and_probe(2)
            sampler.attach(groups[1])
            sync_check.check(2, trainer, sampler)
            publish_and_probe(3)
            sampler.detach(groups[0])
            for version in (4, 5, 6):  # nobody waits for the one that has left
                publish_and_probe(version)
            assert [group.name for group in sampler.groups] == ["sampler 1"]
    finally:
        for pool in pools:
            pool.close()


# --- In several processes


class Processes:
    """Trainers of one and of two ranks, and two samplers, which the tests below change into what they need."""

    def __init__(self) -> None:
        made = {"trainer": Trainer, "ranks": Trainer, "sampler 0": SamplerWorker, "sampler 1": SamplerWorker}
        self.pools = {name: ResourcePool(name, SpawnExecutor([()] * (1 + (name == "ranks")))) for name in made}

        def make(name: str) -> WorkerGroup:
            return WorkerGroup(self.pools[name], made[name], process_group=name == "ranks")

        with ThreadPoolExecutor() as threads:  # processes take seconds to start
            groups = dict(zip(made, threads.map(make, made), strict=True))
        self.trainer, self.ranks = groups.pop("trainer"), groups.pop("ranks")
        self.samplers = groups

    def become(self, *samplers: dict, **trainer: object) -> tuple[WorkerGroup, dict[str, WorkerGroup]]:
        """The trainer of one rank and as many samplers, as these options say."""
        self.trainer.become(trainer).result()
        for group, options in zip(self.samplers.values(), samplers, strict=False):
            group.become(options).result()
        return self.trainer, dict(list(self.samplers.items())[: len(samplers)])


@pytest.mark.soak
@pytest.mark.timeout(280)
class TestProcesses:
    @pytest.fixture(scope="class")
    @classmethod
    def processes(cls) -> Iterator[Processes]:
        made = Processes()
        try:
            yield made
        finally:
            for pool in made.pools.values():
                pool.close()

    def test_weights_are_equal_and_a_hundred_publishes_leave_nothing(self, processes: Processes):
        trainer, samplers = processes.become({})
        sampler = samplers["sampler 0"]
        publisher = publish_and_compare(trainer, samplers)
        assert publisher.routes == {"sampler 0": [Route.MEMORY]}
        files, mappings, own = sampler.open_files().result(), sampler.mappings().result(), len(os.listdir("/dev/shm"))
        for version in range(10, 110):
            publish(publisher, version, samplers)
        assert sampler.open_files().result() <= files  # a value on its way may be open for a moment
        assert sampler.mappings().result() <= mappings
        assert len(os.listdir("/dev/shm")) <= own
        begin(publisher, 1, samplers)  # another memory; the former is free
        require_equal(trainer, sampler, 1)
        assert sampler.mappings().result() <= mappings
        assert sampler.open_files().result() <= files

    @pytest.mark.parametrize(
        ("trainer", "form"),
        [
            ({}, BFLOAT16),
            ({"lora": True}, AS_TRAINED),
            ({"lora": True}, Form(adapter_only=True)),
            ({"trainer": TrainerConfig(sharding="none")}, AS_TRAINED),
        ],
        ids=["rounded", "adapter", "adapter alone", "replicated"],
    )
    def test_two_ranks_write_their_own_rows(self, processes: Processes, trainer: dict, form: Form):
        _, samplers = processes.become({})
        processes.ranks.become(trainer).result()
        if "lora" not in trainer:
            publish_and_compare(processes.ranks, samplers, form)
            return
        publisher = Publisher(processes.ranks, form, deadline_s=DEADLINE_S)
        begin(publisher, 1, samplers)
        processes.ranks.learn(1).result()
        publish(publisher, 2, samplers)
        expected, (_, held) = processes.ranks.plain_copy().result(), samplers["sampler 0"].held().result()
        # A matrix product of some of the rows may be rounded otherwise than that of all.
        assert max((held[name] - tensor).abs().max().item() for name, tensor in expected.items()) < 1e-6

    @pytest.mark.parametrize("lora", [False, True], ids=["weights", "adapter"])
    def test_a_rank_that_does_not_write_its_rows_is_found(self, processes: Processes, lora: bool):
        _, samplers = processes.become({})
        processes.ranks.become({"lora": lora}).result()
        publisher = Publisher(processes.ranks, AS_TRAINED, deadline_s=DEADLINE_S)
        begin(publisher, 1, samplers)
        processes.ranks.learn(1).result()
        processes.ranks.leave_out(0, 1).result()
        with pytest.raises(FaultError, match="arrived here otherwise than the trainer holds them: a rank"):
            publish(publisher, 2, samplers)

    def test_a_sampler_on_another_host_fetches_buckets(self, processes: Processes):
        trainer, samplers = processes.become({"host": "another"}, {})
        publisher = publish_and_compare(trainer, samplers)
        assert publisher.routes == {"sampler 0": [Route.BUCKETS], "sampler 1": [Route.MEMORY]}

    @pytest.mark.parametrize("form", [BFLOAT16, Form(adapter_only=True)], ids=["rounded", "adapter alone"])
    def test_a_broadcast_reaches_all_members_and_one_that_comes_later(self, processes: Processes, form: Form):
        """By gloo, between processes that say that they have GPUs."""
        trainer, samplers = processes.become({"gpu": "B"}, {"gpu": "C"}, gpu="A", lora=form.adapter_only)
        late = samplers.pop("sampler 1")
        publisher = publish_and_compare(trainer, samplers, form)
        assert publisher.routes == {"sampler 0": [Route.BROADCAST]}
        samplers["sampler 1"] = late
        publisher.deliver(late, called(late))
        require_equal(trainer, late, 8, form.dtype)
        trainer.learn(9).result()
        publish(publisher, 9, samplers)
        for sampler in samplers.values():
            require_equal(trainer, sampler, 9, form.dtype)

    def test_a_trainer_that_cannot_send_is_what_is_told_and_not_that_samplers_waited(self, processes: Processes):
        trainer, samplers = processes.become({"gpu": "B"}, gpu="A")
        publisher = Publisher(trainer, AS_TRAINED, deadline_s=5)
        begin(publisher, 1, samplers)
        trainer.lose_the_network().result()
        with pytest.raises(ConnectionError, match="network is unreachable"):
            publish(publisher, 2, samplers)

    def test_a_trainer_killed_in_the_middle_of_a_write_leaves_samplers_as_they_were(self, processes: Processes):
        trainer, samplers = processes.become({})
        publisher = publish_and_compare(trainer, samplers)
        before = samplers["sampler 0"].held().result()
        trainer.learn(9).result()
        trainer.die_while_writing(5).result()
        with pytest.raises(WorkerDied, match="SIGKILL") as raised:
            publish(publisher, 9, samplers)
        assert "Version 9 was not written whole; samplers have version 8 as before" in raised.value.__notes__
        with pytest.raises(FaultError, match=r"version 9 was not published whole: .*half-written version 9.*has ended"):
            samplers["sampler 0"].take_weights(9, None).result()
        after = samplers["sampler 0"].held().result()
        assert after[0] == before[0] == 8
        assert all(torch.equal(after[1][name], tensor) for name, tensor in before[1].items())
        trainer.restart().result()
        trainer.learn(1).result()
        begin(publisher, 9, samplers)
        require_equal(trainer, samplers["sampler 0"], 9)

    def test_a_sampler_that_was_killed_is_not_waited_for_and_a_new_one_takes_its_place(self, processes: Processes):
        trainer, samplers = processes.become({}, {})
        publisher = publish_and_compare(trainer, samplers)
        os.kill(samplers["sampler 0"]._ranks.process_ids[0], 9)
        with pytest.raises(WorkerDied):
            publish(publisher, 9, samplers)
        require_equal(trainer, samplers["sampler 1"], 9)
        left = {"sampler 1": samplers["sampler 1"]}
        publish(publisher, 10, left)
        publish(publisher, 11, left)
        samplers["sampler 0"].restart().result()
        publisher.deliver(samplers["sampler 0"], called(samplers["sampler 0"]))
        for sampler in samplers.values():
            require_equal(trainer, sampler, 11)


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_actors_in_ray_map_memory_and_fetch_buckets(ray_cluster):
    from autoclave.workers.ray_executor import Demand, RayExecutor

    names = iter(range(9))
    there = partial(SamplerWorker, host="another")
    with groups(Trainer, there, SamplerWorker, executor=lambda: RayExecutor(f"pool {next(names)}", Demand(1, 0))) as (
        trainer,
        samplers,
    ):
        publisher = publish_and_compare(trainer, samplers)
        assert publisher.routes == {"sampler 0": [Route.BUCKETS], "sampler 1": [Route.MEMORY]}
