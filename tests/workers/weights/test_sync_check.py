"""A sampler that does not compute with what was published is found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import FaultError
from autoclave.workers import ResourcePool, WorkerGroup
from autoclave.workers.weights.publisher import Publisher
from autoclave.workers.weights.sync_check import LIMITS, SyncCheck, mismatch
from tests.workers.weights.parts import Asked, OldStamps, SamplerWorker, SleepingEngine, Trainer, begin, publish

PROMPTS = [np.array([2, 40, 3]), np.array([2, 9, 60, 71, 3])]


# --- The comparison


def test_two_tokens_by_hand():
    found = mismatch(np.array([-1.0, -2.0]), np.array([-1.5, -1.75]))
    assert (found.mean, found.max, found.tokens) == (0.375, 0.5, 2)
    assert found.k3 == pytest.approx(((np.exp(0.5) - 1.5) + (np.exp(-0.25) - 0.75)) / 2)


@given(st.lists(st.floats(-20, 0), min_size=1), st.floats(-3, 3))
def test_only_equal_log_probs_have_no_mismatch(log_probs: list[float], shift: float):
    one = np.array(log_probs)
    found = mismatch(one + shift, one)
    assert found.mean == pytest.approx(abs(shift), abs=1e-9)
    assert found.k3 >= -1e-12
    assert mismatch(one, one).max == 0


def test_a_log_prob_that_is_not_finite_is_infinitely_far():
    assert mismatch(np.array([-1.0, np.nan]), np.array([-1.0, -1.0])).mean == np.inf
    with pytest.raises(ValueError, match="N > 0"):
        mismatch(np.zeros(0), np.zeros(0))


# --- The probe


@contextmanager
def published(**sampler: object) -> Iterator[tuple[SyncCheck, Callable[[int], None], WorkerGroup, Asked]]:
    """Trainer and sampler after version 1 has been taken over and found right."""
    pools = ResourcePool("trainer"), ResourcePool("sampler")
    try:
        trainer = WorkerGroup(pools[0], Trainer)
        group = WorkerGroup(pools[1], lambda: SamplerWorker(seed=0, **sampler))  # the weights that training begins with
        publisher = Publisher(trainer, deadline_s=20)
        begin(publisher, 1, {"sampler 0": group})
        sync_check = SyncCheck(PROMPTS, temperature=1.0, tokens=4, limit=LIMITS["float32"], deadline_s=20)
        yield (
            sync_check,
            lambda version: publish(publisher, version, {"sampler 0": group}),
            trainer,
            Asked({"sampler 0": group}),
        )
    finally:
        for pool in pools:
            pool.close()


def test_a_sampler_with_the_weights_of_the_trainer_agrees_with_it():
    with published() as (sync_check, publish_as, trainer, samplers):
        for version in range(2, 5):
            trainer.learn(version).result()
            publish_as(version)
            metrics = sync_check.check(version, trainer, samplers)
            assert list(metrics) == ["publish/mismatch_mean", "publish/mismatch_max", "publish/mismatch_k3"]
            assert 0 <= metrics["publish/mismatch_mean"] <= metrics["publish/mismatch_max"] < 1e-5


@pytest.mark.parametrize("stale", ["lm_head.weight", "model.layers.1.mlp.down_proj.weight"])
def test_a_weight_that_an_engine_does_not_renew_stops_the_run(stale: str):
    with published(stale=stale) as (sync_check, publish_as, trainer, samplers):
        sync_check.check(1, trainer, samplers)  # nothing has changed yet: it looks right
        trainer.learn(1).result()
        publish_as(2)
        with pytest.raises(
            FaultError, match=r"sync check of version 2: the log-probs of sampler 'sampler 0' differ by.*packed"
        ):
            sync_check.check(2, trainer, samplers)


def test_a_sampler_that_took_nothing_over_is_recognised():
    with published(engine=SleepingEngine) as (sync_check, publish_as, trainer, samplers):
        sync_check.check(1, trainer, samplers)
        trainer.learn(1).result()
        publish_as(2)
        with pytest.raises(FaultError, match="answers as before the publish: it did not take the weights over"):
            sync_check.check(2, trainer, samplers)


def test_equal_answers_are_an_error_only_where_the_trainers_log_probs_of_them_moved():
    """With a limit that no gap reaches, as coarse formats have it."""
    with published(engine=SleepingEngine) as (_, publish_as, trainer, samplers):
        sync_check = SyncCheck(PROMPTS, temperature=1.0, tokens=4, limit=20.0, deadline_s=20)
        sync_check.check(1, trainer, samplers)
        publish_as(2)  # of equal weights
        sync_check.check(2, trainer, samplers)
        sync_check.limit = 0.5
        trainer.learn(1).result()
        publish_as(3)
        with pytest.raises(FaultError, match=r"answers as before the publish.*moved by \d"):
            sync_check.check(3, trainer, samplers)


def test_tokens_of_another_version_are_an_error_even_if_they_agree():
    said = r"sampler 'sampler 0' stamps its tokens with version 0; it missed a publish"
    with published(engine=OldStamps) as (sync_check, _, trainer, samplers), pytest.raises(FaultError, match=said):
        sync_check.check(1, trainer, samplers)
