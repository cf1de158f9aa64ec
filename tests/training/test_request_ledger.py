"""The account of a run's requests, where no schedule is needed to show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoclave.core import FaultError
from autoclave.rollout import Collection
from autoclave.training.learned import Learned
from autoclave.training.request_ledger import RequestLedger
from autoclave.training.saved_groups import names_of
from tests.training_parts import HeldSampler, completion, earned, item, request, settled


def resampled_once(index, times, group):
    return None if times else [request([2], 0, 0, index, 5)]


def collection(sampler: HeldSampler) -> Collection:
    reward = settled(earned(1.0))
    return Collection([item()], [[request([2], 0, 0, 0, 0)]], sampler, lambda *_: reward, resample=resampled_once)


def learned_from(groups) -> Learned:
    return Learned(groups, [type("Entry", (), {"weight": 1.0}) for _ in groups], {}, [None for _ in groups])


def test_a_group_that_was_asked_again_and_completed_after_the_last_check_is_kept_by_a_checkpoint(tmp_path: Path):
    sampler, ledger = HeldSampler(), RequestLedger()
    batch = collection(sampler)
    ledger.watch(batch)
    ledger.check([batch])
    for _ in range(2):  # while the run evaluates, say, and before it saves
        sampler.futures[0].set_result(completion())
    known = {0: batch.known}
    ledger.save(tmp_path)
    resumed = RequestLedger()
    resumed.load(tmp_path, names_of(known))
    resumed.learn(learned_from(batch.result()))
    assert resumed.counts() == {"dispatched": 2, "dropped/resampled": 1, "trained": 1, "requeued": 0, "open": 0}


def test_learning_twice_from_one_request_is_an_error_that_names_it():
    sampler, ledger = HeldSampler(), RequestLedger()
    batch = collection(sampler)
    ledger.watch(batch)
    for _ in range(2):
        sampler.futures[0].set_result(completion())
    ledger.learn(learned_from(batch.result()))
    with pytest.raises(FaultError, match=r"request \(0, 0, 0, 5\) ends \(trained\), and it was never dispatched, or"):
        ledger.learn(learned_from(batch.result()))


def test_what_was_under_way_asks_nothing_more_when_the_account_begins_anew():
    sampler, ledger = HeldSampler(), RequestLedger()
    batch = collection(sampler)
    ledger.watch(batch)
    first = sampler.futures
    ledger.restart()
    first[0].set_result(completion())
    assert sampler.futures is first
    assert "1 responses" not in ledger.state()
