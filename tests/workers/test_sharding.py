"""How a model is held changes memory and speed, and no result: on one process, and on two that hold it together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from autoclave.config import TinyModelConfig, TrainerConfig
from autoclave.core import ConfigError, FaultError, HostError, InputError
from autoclave.models import build_tiny_policy, load_policy, save_model
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.spawn_executor import SpawnExecutor
from autoclave.workers.trainer.reference import ReferenceWorker
from autoclave.workers.trainer.sharding import Place, check_device, decoder_layers, hold, offload, onload
from tests.training_parts import tiny_policy
from tests.workers.actor_conformance import Setup, sample_batch
from tests.workers.changing_actor import ChangingActor, make_actor

CPU = torch.device("cpu")
SETUP = Setup()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy")
    save_model(tiny_policy(), path)
    return path


def learnt(folder: Path, trainer: TrainerConfig, setup: Setup = SETUP):
    """An actor after an update of three steps, and the metrics of that."""
    actor = make_actor(folder, setup, trainer)
    return actor, actor.update(sample_batch(), 4)


def difference(one, other) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


# --- One process ---------------------------------------------------------------------------------------------------


def test_layers_are_found_however_they_are_nested():
    policy = tiny_policy()
    assert decoder_layers(torch.nn.ModuleDict({"trunk": policy.model})) == list(policy.model.model.layers)
    with pytest.raises(InputError, match="Linear has no decoder layers"):
        decoder_layers(torch.nn.Linear(2, 2))


def test_activation_checkpointing_computes_layers_again_and_changes_no_gradient(folder: Path):
    updates = []
    for is_on in (False, True):
        actor = make_actor(folder, Setup(micro_batch_tokens=1 << 20), TrainerConfig(activation_checkpointing=is_on))
        calls = []
        for layer in decoder_layers(actor._model):
            layer.mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        metrics = actor.update(sample_batch((0,) * 7), 1)
        updates.append((actor.export_weights(), metrics, len(calls)))
    (plain, metrics, once), (checkpointed, other_metrics, twice) = updates
    assert twice == once + 2  # for each of two layers, once more in the backward pass
    assert difference(plain, checkpointed) == 0.0
    assert metrics == other_metrics


def test_mixed_precision_computes_in_bfloat16_from_weights_in_float32(folder: Path):
    actor = make_actor(folder, SETUP, TrainerConfig(mixed_precision="bfloat16"))
    inside, gradients = set(), set()
    layer = decoder_layers(actor._model)[0]
    layer.mlp.up_proj.register_forward_hook(
        lambda module, args, result: inside.update({module.weight.dtype, args[0].dtype, result.dtype})
    )
    hook = register_optimizer_step_pre_hook(
        lambda optimizer, *_: gradients.update(p.grad.dtype for p in optimizer.param_groups[0]["params"])
    )
    exact, metrics = learnt(folder, TrainerConfig())
    gradients.clear()
    rounded_metrics = actor.update(sample_batch(), 4)
    hook.remove()
    assert inside == {torch.bfloat16}
    assert gradients == {torch.float32}
    assert {tensor.dtype for tensor in actor.export_weights().values()} == {torch.float32}
    scores, rounded = (a.log_probs(sample_batch()).responses["old_log_probs"] for a in (exact, actor))
    assert 1e-5 < np.abs(scores - rounded).max() < 0.3  # of log-probs of about -8
    assert rounded_metrics == pytest.approx(metrics, rel=0.1, abs=0.05)


def test_the_reference_is_rounded_as_the_actor_is(folder: Path):
    trainer = TrainerConfig(mixed_precision="bfloat16")
    reference = ReferenceWorker(
        load_policy(folder, device="cpu"), temperature=SETUP.temperature, micro_batch_tokens=30, trainer=trainer
    )
    found = reference.log_probs(sample_batch()).responses["reference_log_probs"]
    expected = make_actor(folder, SETUP, trainer).log_probs(sample_batch()).responses["old_log_probs"]
    assert np.array_equal(found, expected)


def test_tied_weights_are_exported_as_one_tensor(folder: Path):
    for trainer in (TrainerConfig(), TrainerConfig(mixed_precision="bfloat16")):
        exported = make_actor(folder, SETUP, trainer).export_weights()
        assert exported["lm_head.weight"] is exported["model.embed_tokens.weight"]


def test_after_a_score_no_weight_is_left_gathered(folder: Path):
    actor = make_actor(folder, SETUP, TrainerConfig(mixed_precision="bfloat16"))
    actor.log_probs(sample_batch())
    assert all(isinstance(weights, DTensor) for weights in actor._model.parameters())


def test_ranks_that_cannot_reach_each_other_do_not_learn_apart(folder: Path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as workers see it
    with pytest.raises(RuntimeError, match="process_group=True"):
        make_actor(folder, SETUP)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute"
)  # of the compiler, which hides it where warnings are no errors
def test_compiled_layers_learn_the_same(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # more are processes that stay
    shape = TinyModelConfig(hidden_size=16, layers=1, heads=2, vocabulary=300, context=64)
    save_model(build_tiny_policy(shape, ["Print 3."], seed=0, device="cpu"), tmp_path)
    batch, setup = sample_batch((0,) * 7), Setup(micro_batch_tokens=1 << 20)
    plain, compiled = (make_actor(tmp_path, setup, TrainerConfig(compile=is_on)) for is_on in (False, True))
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    assert compiled.update(batch, 1) == pytest.approx(plain.update(batch, 1), rel=1e-4, abs=1e-6)
    assert graphs["unique_graphs"] > before
    assert difference(plain.export_weights(), compiled.export_weights()) < 1e-4


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(HostError, match=r"trainer\.compile = true: needs a C\+\+ compiler.*apt install g\+\+"):
        check_device(TrainerConfig(compile=True), CPU)


def test_offloading_to_where_the_model_is_anyway_is_refused():
    with pytest.raises(ConfigError, match=r"trainer\.cpu_offload = true: models are on the CPU here"):
        hold(tiny_policy().model, TrainerConfig(cpu_offload=True), CPU)


def test_turns_on_a_gpu_move_weights_and_optimizer_off_it_and_back(folder: Path):
    actor, _ = learnt(folder, TrainerConfig())
    trained = actor._trained
    before = [weights.data_ptr() for weights in trained.module.parameters()]
    actor.offload()
    actor.onload()
    assert [weights.data_ptr() for weights in trained.module.parameters()] == before  # on the CPU nothing moves
    trained.module.place = Place(torch.device("meta"), is_home=True)  # a device that every machine has
    actor.onload()
    moments = [state["exp_avg"] for state in trained.optimizer.state.values()]
    assert {tensor.device.type for tensor in [*trained.module.parameters(), *moments]} == {"meta"}


@pytest.mark.gpu
def test_turns_on_a_gpu_change_no_number(folder: Path):
    policy = load_policy(folder, device="cpu")
    hold(policy.model, TrainerConfig(), torch.device("cuda"))
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    offload(policy.model)
    assert next(policy.model.parameters()).device.type == "cpu"
    onload(policy.model)
    assert next(policy.model.parameters()).device.type == "cuda"
    assert difference(before, policy.model.state_dict()) == 0.0


# --- Two processes -------------------------------------------------------------------------------------------------


def assert_same_metrics(found: dict[str, float], expected: dict[str, float]) -> None:
    """Up to rounding; the relative update is measured on a sample of each rank's part of the weights."""
    sampled = pytest.approx(expected["relative_update"], rel=0.2)
    assert found["relative_update"] == sampled
    assert found | {"relative_update": 0.0} == pytest.approx(expected | {"relative_update": 0.0}, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(240)
class TestTwoProcesses:
    @pytest.fixture(scope="class")
    @classmethod
    def group(cls) -> Iterator[WorkerGroup[ChangingActor]]:
        pool = ResourcePool("two", SpawnExecutor([(), ()]))
        try:
            yield WorkerGroup(pool, ChangingActor, name="actor", process_group=True)
        finally:
            pool.close()

    @staticmethod
    def become(group, folder: Path, setup: Setup = SETUP, **trainer: object) -> None:
        group.become(folder, setup, TrainerConfig(**trainer)).result()

    @pytest.mark.parametrize(
        ("sharding", "copies"),
        [
            ({}, 1),
            ({"sharding": "zero2"}, 1),
            ({"sharding": "none"}, 2),
            ({"shard_size": 1}, 2),
            ({"shard_size": 2}, 1),
        ],
    )
    def test_between_calls_each_keeps_its_part(self, group, folder: Path, sharding: dict, copies: int):
        self.become(group, folder, **sharding)
        numbers = sum(weights.numel() for weights in load_policy(folder, device="cpu").model.parameters())
        for call in (lambda: group.log_probs(sample_batch()), lambda: group.update(sample_batch(), 4)):
            call().result()
            kept = group.kept_here().result()
            assert sum(kept) == copies * numbers
            assert max(kept) <= 0.51 * copies * numbers

    @pytest.mark.parametrize(
        "sharding", [{}, {"sharding": "zero2"}, {"sharding": "none"}, {"shard_size": 1}, {"shard_size": 2}]
    )
    def test_metrics_and_weights_are_those_of_one_process(self, group, folder: Path, sharding: dict):
        one, metrics = learnt(folder, TrainerConfig())
        self.become(group, folder, **sharding)
        assert_same_metrics(group.update(sample_batch(), 4).result(), metrics)
        assert difference(one.export_weights(), group.export_weights().result()) < 1e-5

    def test_mixed_precision_and_checkpointing_go_with_sharding(self, group, folder: Path):
        settings = {"mixed_precision": "bfloat16", "activation_checkpointing": True}
        one, metrics = learnt(folder, TrainerConfig(**settings))
        self.become(group, folder, **settings)
        assert group.update(sample_batch(), 4).result() == pytest.approx(metrics, rel=0.05, abs=0.01)
        assert difference(one.export_weights(), group.export_weights().result()) < 5e-3  # three steps of 1e-3 each

    def test_a_loss_that_is_not_finite_on_one_of_them_is_raised_and_both_go_on(self, group, folder: Path):
        self.become(group, folder)
        before = group.export_weights().result()
        batch = sample_batch()
        bonus = batch.responses["entropy_coefficient"].copy()
        bonus[3:5] = 3e38  # of one row, whose loss is too large for float32
        with pytest.raises(FaultError, match=r"optimizer step 1: not finite: .*loss"):
            group.update(batch.with_responses(entropy_coefficient=bonus), 4).result()
        assert difference(before, group.export_weights().result()) == 0.0
        assert group.is_alive
        assert group.update(batch, 4).result()["gradient_norm"] > 0

    def test_what_two_saved_goes_on_in_one(self, group, folder: Path, tmp_path: Path):
        self.become(group, folder)
        group.update(sample_batch(), 4).result()
        group.begin_save(tmp_path).result()
        assert group.finish_save(True).result()
        one = make_actor(folder, SETUP)
        one.load(tmp_path)
        metrics = group.update(sample_batch(), 4).result()
        assert_same_metrics(one.update(sample_batch(), 4), metrics)
        assert difference(one.export_weights(), group.export_weights().result()) < 1e-5


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("sharding", ["zero3", "zero2"])
def test_two_copies_of_two_processes_each_learn_what_one_process_does(folder: Path, sharding: str):
    pool = ResourcePool("four", SpawnExecutor([()] * 4))
    try:
        group = WorkerGroup(pool, ChangingActor, name="actor", process_group=True)
        TestTwoProcesses.become(group, folder, sharding=sharding, shard_size=2)
        one, metrics = learnt(folder, TrainerConfig())
        assert_same_metrics(group.update(sample_batch(), 4).result(), metrics)
        assert difference(one.export_weights(), group.export_weights().result()) < 1e-5
        numbers = sum(weights.numel() for weights in one._model.parameters())
        assert sum(group.kept_here().result()) == 2 * numbers
    finally:
        pool.close()
