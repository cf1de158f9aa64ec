"""Log-probs of rollouts are right if rounding and staleness explain them, and an error if not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoclave.core import Completion, FaultError, Group
from autoclave.workers.weights.sync_check import rollout_mismatch
from tests.training_parts import group_of

VOCABULARY, LIMIT = 50, 0.1


def distributions(seed: int, *, drift: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs (C, V) of a sampler in C contexts, and of a trainer that has moved on by `drift`."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.standard_normal((200, VOCABULARY))
    moved = logits + drift * generator.standard_normal(logits.shape)
    return tuple(each - np.logaddexp.reduce(each, axis=1, keepdims=True) for each in (logits, moved))


def sampled(seed: int, *, drift: float, version: int, count: int = 40, sampler: str = "sampler"):
    """Groups of rollouts of `version`, drawn from the sampler's distribution, and the trainer's log-probs of them."""
    generator = np.random.default_rng(seed + 1000)
    theirs, own = distributions(seed, drift=drift)
    completions, trainer = [], []
    for _ in range(count):
        contexts = generator.integers(0, len(theirs), size=30)
        tokens = np.array([generator.choice(VOCABULARY, p=np.exp(theirs[each])) for each in contexts])
        completions.append(
            Completion(
                prompt_tokens=np.zeros(1, np.int64),
                tokens=tokens,
                log_probs=theirs[contexts, tokens].astype(np.float32),
                log_prob_kind="raw",
                finish_reason="stop",
                text="",
                policy_versions=((version, 0, 30),),
                submitted_at=0.0,
                finished_at=0.0,
                sampled_by=sampler,
            )
        )
        trainer.append(own[contexts, tokens].astype(np.float32))
    return [group_of([1.0] * count, completions)], trainer


def scaled(groups: list[Group], factor: float) -> list[Group]:
    def wrong(rollout):
        completion = rollout.last
        return replace(rollout, turns=(replace(completion, log_probs=completion.log_probs * np.float32(factor)),))

    return [Group(group.item, tuple(map(wrong, group.rollouts))) for group in groups]


@pytest.mark.parametrize(("drift", "version"), [(0.0, 3), (0.02, 3), (0.02, 2), (0.3, 2), (1.0, 1)])
def test_rounding_and_staleness_explain_right_log_probs(drift: float, version: int):
    for seed in range(5):
        groups, trainer = sampled(seed, drift=drift, version=version)
        found = rollout_mismatch(groups, trainer, 3, LIMIT)
        assert list(found) == ["mismatch/mean", "mismatch/max", "mismatch/k3", "mismatch/ratio"]
        assert found["mismatch/ratio"] == pytest.approx(1, abs=0.1 if drift < 1 else 1)


@pytest.mark.parametrize("factor", [1.3, 1.1, 0.9, 0.7])
@pytest.mark.parametrize(("drift", "version"), [(0.0, 3), (0.02, 3), (0.02, 2)])
def test_log_probs_of_another_distribution_are_an_error(factor: float, drift: float, version: int):
    groups, trainer = sampled(0, drift=drift, version=version)
    with pytest.raises(FaultError, match=r"sampler 'sampler': its log-probs of 1200 tokens of .* Fix: "):
        rollout_mismatch(scaled(groups, factor), trainer, 3, LIMIT)


def test_one_sampler_of_many_is_named():
    parts = [sampled(seed, drift=0.02, version=2, sampler=f"sampler-{seed}") for seed in range(5)]
    groups = [group for each, _ in parts for group in each]
    trainer = [log_probs for _, each in parts for log_probs in each]
    rollout_mismatch(groups, trainer, 3, LIMIT)
    groups[3:4] = scaled(groups[3:4], 1.3)
    with pytest.raises(FaultError, match="rollouts of sampler 'sampler-3'"):
        rollout_mismatch(groups, trainer, 3, LIMIT)
    assert rollout_mismatch(groups, trainer, 3, None)["mismatch/mean"] > 0  # measured, and nothing required


def test_tokens_of_the_trainers_own_version_are_off_by_rounding_alone():
    groups, trainer = sampled(0, drift=0.3, version=3)
    with pytest.raises(
        FaultError, match=r"of version 3, which the trainer has, are off by 0\.\d+ .*rounding explains 0\.1"
    ):
        rollout_mismatch(groups, trainer, 3, LIMIT)


def test_rollouts_that_were_not_scored_say_nothing():
    groups, trainer = sampled(0, drift=0.0, version=3)
    assert rollout_mismatch(groups, [None] * len(trainer), 3, LIMIT) == {}
