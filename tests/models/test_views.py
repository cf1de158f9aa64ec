"""A model computes with the tensors that it is given."""

from __future__ import annotations

import pytest
import torch

from autoclave.core import InputError
from autoclave.models import WeightViews
from tests.training_parts import tiny_policy

IDS = torch.tensor([[2, 40, 41, 3]])


def weights(seed: int = 1, **options) -> dict[str, torch.Tensor]:
    return dict(tiny_policy(seed, **options).model.state_dict())


@torch.no_grad()
def logits(policy) -> torch.Tensor:
    return policy.model(input_ids=IDS).logits


def test_parameters_become_the_given_tensors_and_tied_ones_stay_tied():
    policy, given = tiny_policy(0), weights(1)
    WeightViews(policy.model).take(given)
    for name, tensor in policy.model.state_dict().items():
        assert tensor.data_ptr() == given[name].data_ptr()
    assert policy.model.lm_head.weight is policy.model.model.embed_tokens.weight
    assert torch.equal(logits(policy), logits(tiny_policy(1)))


def test_one_name_of_tied_weights_is_enough():
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        policy, given = tiny_policy(0), weights(1)
        del given[name]
        WeightViews(policy.model).take(given)
        assert torch.equal(logits(policy), logits(tiny_policy(1)))


def test_another_number_format_is_converted_and_what_was_there_before_is_not_written_to():
    policy, first = tiny_policy(0), weights(1)
    views = WeightViews(policy.model)
    views.take(first)
    views.take(weights(2, dtype=torch.bfloat16))
    assert {tensor.dtype for tensor in policy.model.state_dict().values()} == {torch.float32}
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, weights(2)[name].bfloat16().float())
    assert all(torch.equal(tensor, weights(1)[name]) for name, tensor in first.items())


def changed(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    given = weights(1)
    for name, tensor in changes.items():
        given.pop(name.replace("__", "."), None)
        if tensor is not None:
            given[name.replace("__", ".")] = tensor
    return given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model__norm__weight": None}, "'model.norm.weight': this weight of the sampler's model was not published"),
        ({"model__norm__bias": torch.ones(32)}, "'model.norm.bias': the sampler's model has none; did you mean"),
        ({"model__norm__weight": torch.ones(31)}, r"shape \(31,\), the sampler's model has \(32,\); trainer and sam"),
        ({"lm_head__weight": torch.ones(300, 32)}, "are one weight in the sampler's model, and two were published"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_taken_over(given, said):
    policy = tiny_policy(0)
    size = len(policy.tokenizer)
    given = {name: t if t is None or t.ndim == 1 else torch.ones(size, 32) for name, t in given.items()}
    with pytest.raises(InputError, match=said):
        WeightViews(policy.model).take(changed(**given))
    assert torch.equal(logits(policy), logits(tiny_policy(0)))


def test_the_same_tensors_given_again_show_what_was_written_to_them():
    policy, one, other = tiny_policy(0), weights(1), weights(2)
    views = WeightViews(policy.model)
    for given in (one, other, one, other):
        views.take(given)
        assert torch.equal(logits(policy), logits(tiny_policy(1 if given is one else 2)))
    with torch.no_grad():
        for name, tensor in one.items():
            tensor.copy_(weights(3)[name])
    views.take(one)
    assert torch.equal(logits(policy), logits(tiny_policy(3)))


def test_the_same_tensors_in_another_number_format_are_converted_again():
    policy, given = tiny_policy(0), weights(1, dtype=torch.bfloat16)
    views = WeightViews(policy.model)
    views.take(given)
    with torch.no_grad():
        given["model.norm.weight"].fill_(3)
    views.take(given)
    assert (policy.model.model.norm.weight == 3).all()


def test_another_tensor_under_a_known_name_is_taken_over():
    policy, given = tiny_policy(0), weights(1)
    views = WeightViews(policy.model)
    views.take(given)
    given["model.norm.weight"] = torch.full((32,), 5.0)
    views.take(given)
    assert (policy.model.model.norm.weight == 5).all()
