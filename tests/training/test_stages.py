"""Collect, learn, publish on real workers: what is random depends on seed, iteration, item and sample alone."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import torch

from autoclave.config import (
    CispoConfig,
    DapoConfig,
    DrGrpoConfig,
    GrpoPlusConfig,
    GspoConfig,
    MaskedCorrectionConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)
from autoclave.core import CheckpointError, FaultError
from autoclave.models import encode_prompt
from autoclave.rollout.transformers_engine import TransformersEngine
from autoclave.training.stages import Stages
from autoclave.workers.weights.sync_check import LIMITS, SyncCheck
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import DEADLINE_S, group_of, tiny_policy, tiny_reward_model

pytestmark = pytest.mark.timeout(DEADLINE_S)


def responses(stages: Stages, items, iteration: int) -> list[list[tuple[int, ...]]]:
    """The tokens of every response, by item."""
    groups = stages.collect(items, iteration).result()
    return [[tuple(rollout.last.tokens.tolist()) for rollout in group.rollouts] for group in groups]


def test_an_iteration_is_sampled_alike_however_often_and_unlike_every_other():
    with toy_stages() as stages:
        first, again, other = (responses(stages, ITEMS, iteration) for iteration in (0, 0, 1))
    assert first == again
    assert first != other


def test_an_item_is_asked_as_often_as_the_group_is_large_with_different_answers():
    with toy_stages(group_size=8) as stages:
        (group,) = stages.collect(ITEMS[:1], 0).result()
        prompt = encode_prompt(stages.tokenizer, ITEMS[0].messages)
    assert [rollout.sample for rollout in group.rollouts] == list(range(8))
    assert len({tuple(rollout.last.tokens.tolist()) for rollout in group.rollouts}) > 4
    assert all((rollout.last.prompt_tokens == prompt).all() for rollout in group.rollouts)


def test_an_item_that_is_dealt_twice_is_answered_twice():
    with toy_stages() as stages:
        first, second = responses(stages, [ITEMS[0], ITEMS[0]], 0)
    assert first != second


def test_learning_gives_an_advantage_for_each_rollout_and_metrics_of_the_updates():
    with toy_stages() as stages:
        learned = stages.learn(stages.collect(ITEMS, 0).result())
    assert len(learned.ledger) == sum(len(group.rollouts) for group in learned.groups) == 32
    assert {"loss", "gradient_norm", "entropy", "log_prob_mismatch"} <= learned.metrics.keys()


def test_the_trainers_log_probs_of_fresh_rollouts_are_the_samplers():
    with toy_stages() as stages:
        learned = stages.learn(stages.collect(ITEMS, 0).result())
    rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
    pairs = [(each.last.log_probs, found) for each, found in zip(rollouts, learned.log_probs, strict=True)]
    computed = [(sampler, trainer) for sampler, trainer in pairs if trainer is not None]
    assert 0 < len(computed) <= 32
    for sampler, trainer in computed:
        assert trainer.tolist() == pytest.approx(sampler.tolist(), abs=1e-4)


def test_only_publishing_changes_what_is_sampled():
    with toy_stages() as stages:
        before = responses(stages, ITEMS, 0)
        stages.learn(stages.collect(ITEMS, 0).result())
        assert responses(stages, ITEMS, 0) == before
        stages.publish(1)
        assert responses(stages, ITEMS, 0) != before


class Forgetful(TransformersEngine):
    """Keeps the weights that it was made with, and says that it has the new ones."""

    def update_weights(self, version, weights):
        super().update_weights(version, self._policy.model.state_dict())


def sync_check() -> SyncCheck:
    """A few prompts of the toy task."""
    prompts = [encode_prompt(tiny_policy().tokenizer, item.messages) for item in ITEMS[:2]]
    return SyncCheck(prompts, temperature=1.0, tokens=3, limit=LIMITS["float32"], deadline_s=DEADLINE_S)


def test_after_each_publish_sampler_and_trainer_are_compared():
    with toy_stages(sync_check=sync_check()) as stages:
        for version in (1, 2):
            stages.learn(stages.collect(ITEMS, version).result())
            metrics = stages.publish(version)
            assert 0 <= metrics["publish/mismatch_mean"] <= metrics["publish/mismatch_max"] < 1e-5


def test_a_sampler_that_goes_on_with_old_weights_ends_the_run():
    with toy_stages(sync_check=sync_check(), engine=lambda policy: Forgetful(policy, batch_size=64)) as stages:
        stages.learn(stages.collect(ITEMS, 0).result())
        with pytest.raises(
            FaultError,
            match=r"version 1 did not reach sampler: \d+ of \d+ weights .* in the memory of the engine are not",
        ):
            stages.publish(1)


def test_masked_rollouts_do_not_move_the_policy():
    """A response without a verdict is masked: whatever stands in the others, with it or without it is the same."""
    weights: list[torch.Tensor] = []
    for drops_it in (False, True):
        with toy_stages() as stages:
            groups = stages.collect(ITEMS, 0).result()
            judged = [type(group)(group.item, _with_fault(group.rollouts, drops_it)) for group in groups]
            stages.learn(judged)
            weights.append(stages.actor.export_weights().result()["model.embed_tokens.weight"])
    assert torch.allclose(weights[0], weights[1], atol=1e-6)


def _with_fault(rollouts, drops_it: bool):
    """The rollouts of a group of which the first has no verdict, or without it."""
    (unjudged,) = group_of([None], [rollouts[0].last]).rollouts
    return rollouts[1:] if drops_it else (unjudged, *rollouts[1:])


# --- What an algorithm asks of the stages --------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "resamples"), [(DapoConfig(max_resamples=2), 8), (GrpoPlusConfig(), 0)])
def test_groups_that_teach_nothing_are_sampled_again_as_often_as_the_algorithm_asks(algorithm, resamples):
    with toy_stages(lambda response: 0.0, algorithm=algorithm) as stages:
        collection = stages.collect(ITEMS, 0)
        groups = collection.result()
    assert collection.times.resamples == resamples  # two for each of four items, which stay uniform
    first = 8 * resamples // len(ITEMS)
    assert [[rollout.sample for rollout in group.rollouts] for group in groups] == [list(range(first, first + 8))] * 4


def test_a_group_that_is_sampled_again_has_other_responses_and_the_same_every_time():
    with toy_stages(lambda response: 0.0, algorithm=DapoConfig(max_resamples=1)) as stages:
        again, once_more = responses(stages, ITEMS, 0), responses(stages, ITEMS, 0)
    with toy_stages(lambda response: 0.0) as stages:
        first = responses(stages, ITEMS, 0)
    assert again == once_more
    assert again != first


EVERY_SETTING = [
    GrpoPlusConfig(reading="introduction", exploration_coefficient=0.5, saturation_steps=1, saturation_tolerance=1.0),
    GrpoPlusConfig(mask_overlong=False, correction=MaskedCorrectionConfig(level="geometric")),
    DapoConfig(),
    DrGrpoConfig(),
    RlooConfig(),
    ReinforcePlusPlusConfig(),
    ReinforcePlusPlusConfig(baseline="group"),
    GspoConfig(),
    CispoConfig(),
    PpoConfig(),
]


@pytest.mark.parametrize("algorithm", EVERY_SETTING, ids=lambda settings: settings.name)
def test_every_algorithm_learns_and_accounts_for_every_rollout(algorithm):
    with toy_stages(algorithm=algorithm) as stages:
        learned = stages.learn(stages.collect(ITEMS, 0).result())
    rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
    assert learned.metrics["gradient_norm"] > 0
    for rollout, entry in zip(rollouts, learned.ledger, strict=True):
        assert (entry.weight is None) == (entry.advantage is None) == (not rollout.is_trained)
        assert entry.group_mean is not None
    by_step = sum(entry.weight or 0 for entry in learned.ledger)
    if algorithm.name not in ("rloo", "dr_grpo"):  # whose weights are no mean over tokens
        assert by_step == pytest.approx(2, abs=1e-5)  # two optimizer steps


def test_what_an_algorithm_adapts_is_carried_on_and_survives_a_checkpoint(tmp_path):
    settings = EVERY_SETTING[0]
    with toy_stages(algorithm=settings) as stages:
        assert stages.controllers.state == {"entropy_coefficient": (0.5,)}
        used = [stages.learn(stages.collect(ITEMS, 0).result()).metrics["entropy_coefficient"] for _ in range(3)]
        assert used == [0.5, 0.5, 0.0]  # two entropies seen, which differ by less than the whole
        stages.saved().begin_save(tmp_path)
        assert stages.saved().finish_save(True)
        kept = stages.controllers.state
    with toy_stages(algorithm=settings) as stages:
        stages.controllers.load(tmp_path)
        assert stages.controllers.state == kept == {"entropy_coefficient": (0.0,)}
    (tmp_path / "algorithm.json").write_text("{}")
    with toy_stages(algorithm=settings) as stages, pytest.raises(CheckpointError, match=r"algorithm\.json: damaged"):
        stages.controllers.load(tmp_path)


# --- Critic and reward model ---------------------------------------------------------------------------------------


def test_the_critic_learns_beside_the_policy_and_comes_back_from_a_checkpoint(tmp_path):
    with toy_stages(lambda response: 1.0, algorithm=PpoConfig()) as stages:
        groups = stages.collect(ITEMS, 0).result()
        errors = [stages.learn(groups).metrics["critic/value_error"] for _ in range(4)]
        assert errors[3] < errors[0]
        stages.saved().begin_save(tmp_path)
        kept = stages.learn(groups).metrics
        assert stages.saved().finish_save(True)
    with toy_stages(lambda response: 1.0, algorithm=PpoConfig(), goes_on_from=tmp_path) as stages:
        assert stages.learn(groups).metrics == kept


def test_the_updates_of_actor_and_critic_are_both_begun_before_either_is_waited_for():
    """Before each update here its pool waits for that of the other: one after the other they would not meet."""
    with toy_stages(algorithm=PpoConfig()) as stages:
        groups = stages.collect(ITEMS, 0).result()
        rendezvous = Barrier(2, timeout=DEADLINE_S / 2)
        parts = {name: Rendezvous(getattr(stages, name), rendezvous) for name in ("actor", "critic")}
        replace(stages, **parts).learn(groups)
    assert not rendezvous.broken


class Rendezvous:
    """A worker group whose pool meets another at each update, before it."""

    def __init__(self, group, rendezvous: Barrier) -> None:
        self._group, self._meeting = group, rendezvous

    def update(self, *args):
        self._group.pool.submit(self._meeting.wait)
        return self._group.update(*args)

    def __getattr__(self, name: str):
        return getattr(self._group, name)


def test_a_reward_model_moves_rewards_and_leaves_verdicts():
    with toy_stages(reward_model=tiny_reward_model) as stages:
        groups = stages.collect(ITEMS, 0).result()
        (unjudged,) = group_of([None], [groups[0].rollouts[0].last]).rollouts
        groups[0] = type(groups[0])(groups[0].item, (unjudged, *groups[0].rollouts[1:]))
        learned = stages.learn(groups)
    before = [rollout.reward for group in groups for rollout in group.rollouts]
    after = [rollout.reward for group in learned.groups for rollout in group.rollouts]
    assert after[0] == before[0]  # without a verdict there is no reward
    for was, now, entry in zip(before[1:], after[1:], learned.ledger[1:], strict=True):
        assert now.verdict == was.verdict
        assert now.parts["verdict"] == was.value
        assert now.value == pytest.approx(was.value + now.parts["reward_model"])
        assert entry.reward == pytest.approx(now.value)
    assert np.ptp([reward.parts["reward_model"] for reward in after[1:]]) > 0


def test_with_a_reward_model_groups_of_equal_verdicts_teach_something():
    with toy_stages(lambda response: 0.0, reward_model=tiny_reward_model) as stages:
        assert stages.learn(stages.collect(ITEMS, 0).result()).metrics["gradient_norm"] > 0


# --- The loop as it is shown ---------------------------------------------------------------------------------------


def test_a_step_of_learning_is_at_most_twice_the_nine_lines_of_the_paper_and_is_what_the_docs_show():
    _, body = inspect.getsource(Stages.learn).split('"""\n', 1)  # after the one line of documentation
    lines = textwrap.dedent(body).strip().splitlines()
    assert len(lines) <= 2 * 9
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    assert textwrap.indent("\n".join(lines), "    ") in page
