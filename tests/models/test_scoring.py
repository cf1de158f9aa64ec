"""Scores of responses in a padded batch are those of each sequence alone."""

from __future__ import annotations

import pytest
import torch

from autoclave.models import response_scores
from tests.training_parts import plain_log_probs, tiny_policy

SEQUENCES = (([2, 9, 3], [40, 41, 1]), ([2, 3], [77]), ([2, *range(30, 40), 3], [5, 6, 7, 8, 9, 1]))


def padded() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    length = max(len(prompt) + len(response) for prompt, response in SEQUENCES)
    ids, attention = torch.zeros(2, len(SEQUENCES), length, dtype=torch.int64)
    response_mask = torch.zeros(len(SEQUENCES), length, dtype=torch.bool)
    for row, (prompt, response) in enumerate(SEQUENCES):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor([*prompt, *response])
        attention[row, :end] = 1
        response_mask[row, len(prompt) : end] = True
    return ids, attention, response_mask


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_are_those_of_each_sequence_alone(temperature):
    policy = tiny_policy(dtype=torch.float64)
    found, _ = response_scores(policy.model, *padded(), temperature=temperature)
    alone = [plain_log_probs(policy, *(torch.tensor(part).numpy() for part in pair), temperature) for pair in SEQUENCES]
    assert torch.allclose(found, torch.cat(alone), atol=1e-10)


def test_entropies_are_those_of_the_distribution_that_is_sampled_from():
    policy = tiny_policy(dtype=torch.float64)
    _, found = response_scores(policy.model, *padded(), temperature=0.5)
    prompt, response = SEQUENCES[0]
    logits = policy.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    expected = torch.distributions.Categorical(logits=logits / 0.5).entropy()
    assert torch.allclose(found[: len(response)], expected, atol=1e-10)


def test_entropies_carry_a_gradient_only_when_it_is_asked_for():
    policy = tiny_policy()
    assert not response_scores(policy.model, *padded(), temperature=1.0)[1].requires_grad
    assert response_scores(policy.model, *padded(), temperature=1.0, entropy_gradient=True)[1].requires_grad
