"""Hidden states at tokens, against the model itself."""

from __future__ import annotations

import torch

from autoclave.models.response_log_probs import hidden_states_at
from tests.training_parts import tiny_policy

TOKENS = [2, 40, 41, 60, 7, 9]


def test_layer_0_is_the_embedding_and_the_last_what_the_head_reads():
    model = tiny_policy().model
    found = hidden_states_at(model, TOKENS, [1, 4, 4])
    assert found.shape == (3, 3, 32)  # two layers and the embedding
    weights = model.get_input_embeddings().weight
    torch.testing.assert_close(found[:, 0], weights[[40, 7, 7]].detach())
    logits = model(torch.tensor([TOKENS])).logits[0, [1, 4, 4]]
    torch.testing.assert_close(model.get_output_embeddings()(found[:, -1]), logits)


def test_what_follows_a_token_does_not_change_what_is_read_there():
    model = tiny_policy().model
    longer, shorter = (hidden_states_at(model, tokens, [2]) for tokens in (TOKENS, TOKENS[:3]))
    torch.testing.assert_close(longer, shorter)


def test_nothing_is_left_to_compute_a_gradient_with():
    found = hidden_states_at(tiny_policy().model, TOKENS, [0])
    assert (found.requires_grad, found.dtype, found.device.type) == (False, torch.float32, "cpu")


def test_no_places_give_no_rows():
    assert hidden_states_at(tiny_policy().model, TOKENS, []).shape == (0, 3, 32)
