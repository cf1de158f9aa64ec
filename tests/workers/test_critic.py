"""The critic's step and the reward model's addition, on the workers that hold them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from autoclave.algorithms import build_algorithm
from autoclave.config import OptimizerConfig, PpoConfig
from autoclave.core import FaultError
from autoclave.models import HeadModel
from autoclave.workers import Batch
from autoclave.workers.trainer.critic import CriticWorker, NoCritic
from autoclave.workers.trainer.reference import NoRewardModel, RewardModelWorker
from tests.training_parts import tiny_critic, tiny_reward_model

PAIRS = [
    ([2, 9, 3], [40, 41, 1]),
    ([2, 3], [77, 1]),
    ([2, *range(30, 40), 3], [5, 6, 7, 8, 9, 1]),
    ([2, 8, 8, 3], [60]),
]
SIZE = sum(len(response) for _, response in PAIRS)


def batch_of(minibatch=(0, 0, 0, 0), **rows: np.ndarray) -> Batch:
    """Four rollouts with returns of about 1, which the critic does not expect yet."""
    noise = np.random.default_rng(0).normal(0, 0.3, SIZE)
    return Batch.from_sequences(
        [(np.array(prompt), np.array(response)) for prompt, response in PAIRS],
        rows={"minibatch": np.array(minibatch), **rows},
        responses={
            "weights": np.full(SIZE, 1 / SIZE, np.float32),
            "old_values": np.zeros(SIZE, np.float32),
            "returns": (1 + noise).astype(np.float32),
        },
    )


def critic_on(critic: HeadModel, *, micro_batch_tokens: int = 1 << 20, **optimizer: object) -> CriticWorker:
    settings = {"learning_rate": 1e-2, "decay": "none", "gradient_clip": 1e9} | optimizer
    return CriticWorker(
        critic,
        build_algorithm(PpoConfig(value_clip=None)),
        OptimizerConfig(**settings),
        total_steps=10,
        micro_batch_tokens=micro_batch_tokens,
    )


def doubled(critic: HeadModel) -> HeadModel:
    return HeadModel(copy.deepcopy(critic.model).double(), critic.tokenizer)


def flat(critic: HeadModel) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in critic.model.parameters()])


# --- The critic ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch_tokens", [1, 20, 40])
def test_the_size_of_micro_batches_changes_neither_values_nor_an_update(micro_batch_tokens: int):
    whole, cut = doubled(tiny_critic()), doubled(tiny_critic())
    workers = critic_on(whole), critic_on(cut, micro_batch_tokens=micro_batch_tokens)
    metrics = [worker.update(batch_of((0, 0, 1, 1)), 2) for worker in workers]
    assert (flat(whole) - flat(cut)).abs().max() < 1e-6
    # maxima aside, metrics are sums over micro-batches; the values of the second minibatch are float32
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-4)
    values = [worker.values(batch_of()).responses["old_values"] for worker in workers]
    assert values[1] == pytest.approx(values[0], abs=1e-5)


def test_updates_bring_values_to_what_was_earned():
    worker = critic_on(tiny_critic())
    batch = batch_of()
    for _ in range(30):
        metrics = worker.update(batch, 1)
    assert metrics["critic/value_error"] < 0.1
    assert worker.values(batch).responses["old_values"].mean() == pytest.approx(1.0, abs=0.2)


def test_metrics_say_that_they_are_the_critics():
    metrics = critic_on(tiny_critic()).update(batch_of(), 1)
    assert {"critic/loss_value", "critic/value_error", "critic/gradient_norm", "critic/learning_rate"} <= metrics.keys()
    assert all(name.startswith("critic/") for name in metrics)


def test_a_minibatch_without_rows_changes_nothing():
    critic = tiny_critic()
    before = flat(critic)
    assert critic_on(critic).update(batch_of().select(np.arange(0)), 2) == {}
    assert torch.equal(flat(critic), before)


def test_a_return_that_is_not_finite_is_named_before_the_weights_change():
    critic = tiny_critic()
    before = flat(critic)
    batch = batch_of()
    batch.responses["returns"][3] = np.nan
    with pytest.raises(FaultError, match=r"returns \(1 of 12\).*weights were those of the start"):
        critic_on(critic).update(batch, 1)
    assert torch.equal(flat(critic), before)


def test_saved_state_goes_on_bit_for_bit(tmp_path: Path):
    critic = tiny_critic()
    worker = critic_on(critic)
    worker.update(batch_of(), 1)
    worker.begin_save(tmp_path)
    assert worker.finish_save(True)
    resumed = tiny_critic()
    second = critic_on(resumed)
    second.load(tmp_path)
    for each in (worker, second):
        each.update(batch_of((0, 0, 1, 1)), 2)
    assert torch.equal(flat(critic), flat(resumed))


def test_without_a_critic_there_is_nothing_to_wait_for():
    batch = batch_of()
    assert NoCritic().values(batch) is batch
    assert NoCritic().update(batch, 2).result() == {}
    assert NoRewardModel().scores(batch).result() is batch


# --- The reward model ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch_tokens", [1, 30, 1 << 20])
def test_a_weighted_score_is_added_to_what_the_judge_gave_and_to_nothing_else(micro_batch_tokens: int):
    rewards = np.array([1.0, np.nan, 0.0, 0.5])
    worker = RewardModelWorker(tiny_reward_model(), weight=0.5, micro_batch_tokens=micro_batch_tokens)
    found = worker.scores(batch_of(rewards=rewards)).rows
    model = tiny_reward_model().model
    for row, (prompt, response) in enumerate(PAIRS):
        hidden = model.model(input_ids=torch.tensor([prompt + response])).last_hidden_state[0, -1]
        score = (hidden @ model.score.weight[0]).item()
        if row == 1:
            assert np.isnan(found["model_rewards"][1])
            assert np.isnan(found["rewards"][1])
        else:
            assert found["model_rewards"][row] == pytest.approx(0.5 * score, abs=1e-5)
            assert found["rewards"][row] == pytest.approx(rewards[row] + 0.5 * score, abs=1e-5)


def test_a_batch_without_any_verdict_is_not_looked_at():
    worker = RewardModelWorker(tiny_reward_model(), weight=1.0, micro_batch_tokens=100)
    assert np.isnan(worker.scores(batch_of(rewards=np.full(4, np.nan))).rows["rewards"]).all()


def test_a_score_that_is_not_finite_is_a_fault():
    model = tiny_reward_model()
    torch.nn.init.constant_(model.model.score.weight, torch.inf)
    worker = RewardModelWorker(model, weight=1.0, micro_batch_tokens=100)
    with pytest.raises(FaultError, match="a score of the reward model is not finite"):
        worker.scores(batch_of(rewards=np.ones(4)))
