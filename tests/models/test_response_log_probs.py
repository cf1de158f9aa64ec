"""Scores of responses in a padded batch are those of each sequence alone."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedConfig

from autoclave.models import response_log_probs
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
    found, _ = response_log_probs(policy.model, *padded(), temperature=temperature)
    alone = [plain_log_probs(policy, *(torch.tensor(part).numpy() for part in pair), temperature) for pair in SEQUENCES]
    assert torch.allclose(found, torch.cat(alone), atol=1e-10)


def test_entropies_are_those_of_the_distribution_that_is_sampled_from():
    policy = tiny_policy(dtype=torch.float64)
    _, found = response_log_probs(policy.model, *padded(), temperature=0.5)
    prompt, response = SEQUENCES[0]
    logits = policy.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    expected = torch.distributions.Categorical(logits=logits / 0.5).entropy()
    assert torch.allclose(found[: len(response)], expected, atol=1e-10)


def test_entropies_carry_a_gradient_only_when_it_is_asked_for():
    policy = tiny_policy()
    assert not response_log_probs(policy.model, *padded(), temperature=1.0)[1].requires_grad
    assert response_log_probs(policy.model, *padded(), temperature=1.0, entropy_gradient=True)[1].requires_grad


# --- Chunks --------------------------------------------------------------------------------------------------------


def scored(policy, **settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of `SEQUENCES`, and the gradient of a mixture of them."""
    log_probs, entropies = response_log_probs(policy.model, *padded(), temperature=0.7, **settings)
    weights = torch.linspace(-1, 2, len(log_probs), dtype=log_probs.dtype)
    (log_probs * weights + entropies * weights.flip(0)).sum().backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()])
    return torch.cat([log_probs, entropies]).detach(), gradient


@pytest.mark.parametrize("entropy_gradient", [True, False])
@pytest.mark.parametrize("logits_chunk", [1, 3, 4, 9, 10, 11])
def test_chunks_change_neither_scores_nor_gradients(logits_chunk: int, entropy_gradient: bool):
    found = scored(tiny_policy(dtype=torch.float64), logits_chunk=logits_chunk, entropy_gradient=entropy_gradient)
    expected = scored(tiny_policy(dtype=torch.float64), entropy_gradient=entropy_gradient)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


class LargestTensor(TorchDispatchMode):
    """Notes the most rows as long as the vocabulary that an operation makes, backward pass included."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self._config, self.rows = config, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and has_logits(tensor, self._config):
                self.rows = max(self.rows, len(tensor))
        return result


def has_logits(tensor: torch.Tensor, config: PreTrainedConfig) -> bool:
    """As wide as the vocabulary, and not the transposed embedding."""
    return tensor.shape[-1:] == (config.vocab_size,) and len(tensor) != config.hidden_size


@pytest.mark.parametrize(("logits_chunk", "rows"), [(3, 3), (4, 4), (None, 10)])
def test_logits_of_more_tokens_than_a_chunk_never_exist(logits_chunk: int | None, rows: int):
    policy = tiny_policy()
    with LargestTensor(policy.model.config) as largest:
        scored(policy, logits_chunk=logits_chunk, entropy_gradient=True)
    assert largest.rows == rows


def test_what_is_kept_for_the_backward_pass_holds_logits_of_one_chunk_at_most():
    policy = tiny_policy()
    kept: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if has_logits(tensor, policy.model.config):
            kept.append(len(tensor))
        return tensor

    for logits_chunk, expected in ((3, []), (10, [10])):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            response_log_probs(policy.model, *padded(), temperature=1.0, logits_chunk=logits_chunk)
        assert kept == expected
