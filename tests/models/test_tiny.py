"""The embedded policy: any text survives its tokenizer, digits stand alone, and a seed decides the weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.models import build_tiny_policy, encode_prompt
from tests.training_parts import TEXTS, TINY, tiny_policy

POLICY = tiny_policy()
TOKENIZER = POLICY.tokenizer


@given(st.text())
def test_any_text_survives_encoding_and_decoding(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


@given(st.integers(0, 10**12))
def test_a_number_is_spelled_digit_by_digit(number):
    assert TOKENIZER.tokenize(str(number)) == list(str(number))


def test_frequent_phrases_are_one_token():
    assert len(TOKENIZER.tokenize("```python")) < 4


def test_a_conversation_is_marked_by_roles_and_ends_where_the_answer_begins():
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    tokens = encode_prompt(TOKENIZER, conversation)
    assert TOKENIZER.decode(tokens) == "<user>Be brief.<user>Hi<assistant>Hello<end><user>Bye<assistant>"
    assert tokens.dtype == "int64"


def test_the_end_token_is_one_token_and_ends_a_response():
    assert TOKENIZER.encode("<end>") == [POLICY.end_token]
    assert POLICY.end_tokens == {POLICY.end_token}


def test_the_shape_is_that_of_the_settings():
    config = POLICY.model.config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (32, 2, 2)
    assert config.max_position_embeddings == TINY.context
    assert config.vocab_size == len(TOKENIZER) <= TINY.vocabulary


def weights(seed: int) -> torch.Tensor:
    policy = build_tiny_policy(TINY, TEXTS, seed=seed, device="cpu")
    return torch.cat([tensor.flatten() for tensor in policy.model.parameters()])


def test_a_seed_decides_the_weights():
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_building_leaves_the_random_numbers_of_others_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    weights(1)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("text", ["<user>", "<assistant>", "<pad>"])
def test_markers_are_single_tokens(text):
    assert len(TOKENIZER.encode(text)) == 1
