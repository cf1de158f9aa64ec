"""The actor with an adapter: it alone learns, samplers see plain weights, and the frozen ones are the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from autoclave.algorithms import build_algorithm
from autoclave.config import GrpoPlusConfig, LoraConfig, OptimizerConfig
from autoclave.models import Policy, load_policy, save_model, with_adapter
from autoclave.workers import Batch, ResourcePool, WorkerGroup
from autoclave.workers.trainer.actor import ActorWorker
from autoclave.workers.trainer.reference import ReferenceWorker, SharedReference
from tests.training_parts import given_gradients, tiny_policy

SCORING = {"temperature": 0.8, "micro_batch_tokens": 20}


def batch() -> Batch:
    sequences = [([2, 9, 3], [40, 41, 1]), ([2, 3], [77, 1]), ([2, *range(30, 40), 3], [5, 6, 7, 8, 9, 1])]
    tokens = sum(len(response) for _, response in sequences)
    return Batch.from_sequences(
        [(np.array(prompt), np.array(response)) for prompt, response in sequences],
        rows={"minibatch": np.zeros(3, dtype=np.int64)},
        responses={
            "weights": np.full(tokens, 1 / tokens, dtype=np.float32),
            "advantages": np.repeat(np.array([1.0, -1.0, 0.5], dtype=np.float32), [3, 2, 6]),
            "old_log_probs": np.full(tokens, -3.0, dtype=np.float32),
        },
    )


def with_new_adapter(policy: Policy) -> Policy:
    with_adapter(policy.model, LoraConfig(rank=4, alpha=8.0), seed=0)
    return policy


def actor_on(policy: Policy, **optimizer: object) -> ActorWorker:
    settings = OptimizerConfig(**({"learning_rate": 1e-2, "weight_decay": 0.1} | optimizer))
    return ActorWorker(policy, build_algorithm(GrpoPlusConfig()), settings, total_steps=10, **SCORING)


def weights(policy: Policy, *, that_learn: bool) -> dict[str, torch.Tensor]:
    found = policy.model.named_parameters()
    return {name: w.detach().clone() for name, w in found if w.requires_grad == that_learn}


def test_an_update_moves_the_adapter_and_no_frozen_weight():
    policy = with_new_adapter(tiny_policy())
    frozen, learning = weights(policy, that_learn=False), weights(policy, that_learn=True)
    actor = actor_on(policy)
    for _ in range(2):  # after the first B is no longer 0, and A has a gradient too
        actor.update(batch(), 1)
    assert all(torch.equal(frozen[name], w) for name, w in weights(policy, that_learn=False).items())
    assert not any(torch.equal(learning[name], w) for name, w in weights(policy, that_learn=True).items())


def test_gradients_and_the_state_of_the_optimizer_are_those_of_the_adapter(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    policy = with_new_adapter(load_policy(tmp_path, device="cpu"))
    actor = actor_on(policy, gradient_clip=1e9)
    with given_gradients(policy.model.parameters()) as found:
        norm = actor.update(batch(), 1)["gradient_norm"]
    assert norm == pytest.approx(found[0].norm().item())
    assert len(found[0]) == sum(w.numel() for w in weights(policy, that_learn=True).values())
    actor.begin_save(tmp_path / "checkpoint")
    assert actor.finish_save(True)
    saved = {}
    for path in (tmp_path / "checkpoint").glob("*.safetensors"):
        saved |= load_file(path)
    learning = sum(w.numel() for w in weights(policy, that_learn=True).values())
    assert sum(tensor.numel() for name, tensor in saved.items() if name.startswith("model.")) == learning
    assert sum(tensor.numel() for name, tensor in saved.items() if ".exp_avg" in name) == 2 * learning


def test_a_sampler_that_knows_nothing_of_adapters_gives_the_same_log_probs():
    policy = with_new_adapter(tiny_policy())
    actor = actor_on(policy)
    for _ in range(3):
        actor.update(batch(), 1)
    plain = tiny_policy(seed=1)
    plain.model.load_state_dict(actor.export_weights())
    expected = ReferenceWorker(plain, **SCORING).log_probs(batch()).responses["reference_log_probs"]
    assert actor.log_probs(batch()).responses["old_log_probs"] == pytest.approx(expected, abs=1e-5)


def test_exported_weights_are_a_copy():
    policy = with_new_adapter(tiny_policy())
    exported = actor_on(policy).export_weights()
    ours = {tensor.data_ptr() for tensor in policy.model.state_dict().values()}
    assert not any(tensor.data_ptr() in ours for tensor in exported.values())


def test_the_reference_is_the_actor_without_what_it_learnt():
    expected = ReferenceWorker(tiny_policy(), **SCORING).log_probs(batch()).responses["reference_log_probs"]
    pool = ResourcePool("pool")
    try:
        actor = WorkerGroup(pool, lambda: actor_on(with_new_adapter(tiny_policy())))
        for _ in range(3):
            actor.update(batch(), 1).result()
        scored = SharedReference(actor).log_probs(actor.log_probs(batch())).result()
    finally:
        pool.close()
    assert np.array_equal(scored.responses["reference_log_probs"], expected)
    assert np.abs(scored.responses["old_log_probs"] - expected).max() > 0.01


def test_an_actor_that_learns_as_a_whole_refuses_to_be_a_reference():
    with pytest.raises(ValueError, match="all its weights learn"):
        actor_on(tiny_policy()).reference_log_probs(batch())


def test_a_saved_adapter_goes_on_bit_for_bit_from_the_same_frozen_weights(tmp_path: Path):
    save_model(tiny_policy(), tmp_path / "start")
    policy = with_new_adapter(load_policy(tmp_path / "start", device="cpu"))
    actor = actor_on(policy)
    for _ in range(3):
        actor.update(batch(), 1)
    actor.begin_save(tmp_path / "saved")
    assert actor.finish_save(True)
    resumed_policy = with_new_adapter(load_policy(tmp_path / "start", device="cpu"))
    resumed = actor_on(resumed_policy)
    resumed.load(tmp_path / "saved")
    for _ in range(3):
        assert actor.update(batch(), 1) == resumed.update(batch(), 1)
    for that_learn in (True, False):
        ours, theirs = (weights(each, that_learn=that_learn) for each in (policy, resumed_policy))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
