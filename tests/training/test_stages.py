"""Collect, learn, publish on real workers: what is random depends on seed, iteration, item and sample alone."""

from __future__ import annotations

import pytest
import torch

from autoclave.models import encode_prompt
from autoclave.training.stages import Stages
from tests.training.toy import ITEMS, toy_stages
from tests.training_parts import DEADLINE_S, group_of

pytestmark = pytest.mark.timeout(DEADLINE_S)


def responses(stages: Stages, items, iteration: int) -> list[list[tuple[int, ...]]]:
    """The tokens of every response, by item."""
    groups = stages.collect(items, iteration).result()
    return [[tuple(rollout.completion.tokens.tolist()) for rollout in group.rollouts] for group in groups]


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
    assert len({tuple(rollout.completion.tokens.tolist()) for rollout in group.rollouts}) > 4
    assert all((rollout.completion.prompt_tokens == prompt).all() for rollout in group.rollouts)


def test_an_item_that_is_dealt_twice_is_answered_twice():
    with toy_stages() as stages:
        first, second = responses(stages, [ITEMS[0], ITEMS[0]], 0)
    assert first != second


def test_learning_gives_an_advantage_for_each_rollout_and_metrics_of_the_updates():
    with toy_stages() as stages:
        learned = stages.learn(stages.collect(ITEMS, 0).result())
    assert len(learned.advantages) == sum(len(group.rollouts) for group in learned.groups) == 32
    assert {"loss", "gradient_norm", "entropy", "sampler_gap"} <= learned.metrics.keys()


def test_the_trainers_log_probs_of_fresh_rollouts_are_the_samplers():
    with toy_stages() as stages:
        learned = stages.learn(stages.collect(ITEMS, 0).result())
    rollouts = [rollout for group in learned.groups for rollout in group.rollouts]
    pairs = [(each.completion.log_probs, found) for each, found in zip(rollouts, learned.log_probs, strict=True)]
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
    (unjudged,) = group_of([None], [rollouts[0].completion]).rollouts
    return rollouts[1:] if drops_it else (unjudged, *rollouts[1:])
