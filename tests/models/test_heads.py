"""Critics and reward models: what they say of each token, and folders that are theirs or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForTokenClassification, LlamaForSequenceClassification, PreTrainedModel

from autoclave.core import InputError
from autoclave.models import (
    HeadModel,
    load_critic,
    load_head_tokenizer,
    load_reward_model,
    response_values,
    save_model,
    sequence_scores,
)
from autoclave.workers import Batch
from tests.training_parts import tiny_critic, tiny_policy, tiny_reward_model

SEQUENCES = [([2, 9, 3], [40, 41, 1]), ([2, 3], [77]), ([2, *range(30, 40), 3], [5, 6, 7, 8, 1])]


def padded() -> list[torch.Tensor]:
    pairs = [(np.array(prompt), np.array(response)) for prompt, response in SEQUENCES]
    return [torch.from_numpy(array) for array in Batch.from_sequences(pairs, rows={}, responses={}).padded()]


def opinionated_critic() -> HeadModel:
    critic = tiny_critic()
    torch.nn.init.normal_(critic.model.score.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.constant_(critic.model.score.bias, 0.5)
    return critic


def hidden_states(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    return model.base_model(input_ids=torch.tensor([tokens])).last_hidden_state[0]


# --- What they say -------------------------------------------------------------------------------------------------


def test_a_value_stands_before_its_token_is_chosen():
    model = opinionated_critic().model
    expected: list[float] = []
    for prompt, response in SEQUENCES:
        said = hidden_states(model, prompt + response) @ model.score.weight[0] + model.score.bias
        expected += said[len(prompt) - 1 : -1].tolist()  # at the last token of the prompt first
    assert response_values(model, *padded()).tolist() == pytest.approx(expected, abs=1e-5)


def test_the_token_itself_does_not_change_its_value():
    model = opinionated_critic().model
    ids, attention, response = padded()
    before = response_values(model, ids, attention, response)
    ids[0, 3] = 99  # the first response token of the first row
    after = response_values(model, ids, attention, response)
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_score_is_that_of_the_last_token_also_if_that_is_the_padding_token():
    model = tiny_reward_model().model
    model.config.pad_token_id = 1  # which ends the first and the last sequence
    ids, attention, _ = padded()
    expected = [
        (hidden_states(model, prompt + response)[-1] @ model.score.weight[0]).item() for prompt, response in SEQUENCES
    ]
    assert sequence_scores(model, ids, attention).tolist() == pytest.approx(expected, abs=1e-5)


# --- Folders -------------------------------------------------------------------------------------------------------


def test_a_new_critic_has_the_trunk_of_the_policy_and_expects_nothing(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    critic = load_critic(tmp_path, device="cpu")
    assert response_values(critic.model, *padded()).tolist() == [0.0] * 9
    trunk = tiny_policy().model.model.state_dict()
    assert all(torch.equal(tensor, trunk[name]) for name, tensor in critic.model.model.state_dict().items())


def test_a_saved_critic_is_what_it_was_and_other_tools_read_it(tmp_path: Path):
    critic = opinionated_critic()
    save_model(critic, tmp_path)
    expected, weights = response_values(critic.model, *padded()), critic.model.state_dict()
    for model in (load_critic(tmp_path, device="cpu").model, AutoModelForTokenClassification.from_pretrained(tmp_path)):
        assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())
        # Mapped weights lie elsewhere in a cache line, and kernels round otherwise there.
        torch.testing.assert_close(response_values(model, *padded()), expected)


def test_a_critic_may_begin_with_the_head_of_a_reward_model(tmp_path: Path):
    save_model(tiny_reward_model(), tmp_path)
    critic, reward_model = load_critic(tmp_path, device="cpu").model, load_reward_model(tmp_path, device="cpu").model
    assert torch.equal(critic.score.weight, reward_model.score.weight)
    assert critic.score.bias.tolist() == [0.0]


def test_a_policy_is_no_reward_model(tmp_path: Path):
    save_model(tiny_policy(), tmp_path)
    with pytest.raises(InputError, match=r"reward_model\.path = .*: not a Hugging Face reward model .*2 labels"):
        load_reward_model(tmp_path)


def test_a_reward_model_without_a_head_is_refused(tmp_path: Path):
    policy = tiny_policy()
    policy.model.config.num_labels = 1
    save_model(policy, tmp_path)
    with pytest.raises(InputError, match=r"reward_model\.path = .*: its weights lack score\.weight; a reward model is"):
        load_reward_model(tmp_path)


def test_a_trunk_that_lacks_weights_is_refused(tmp_path: Path):
    model = tiny_critic().model
    weights = {name: tensor for name, tensor in model.state_dict().items() if "layers.1" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    tiny_policy().tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"critic\.path = .*: its weights lack .*layers\.1"):
        load_critic(tmp_path)


@pytest.mark.parametrize("role", ["critic", "reward_model"])
def test_a_path_where_nothing_is_names_the_setting(tmp_path: Path, role):
    with pytest.raises(InputError, match=rf"{role}\.path = .*: no such folder"):
        load_head_tokenizer(role, str(tmp_path / "none"))
    with pytest.raises(InputError, match=rf"{role}\.path = .*: not a Hugging Face"):
        load_head_tokenizer(role, str(tmp_path))


def test_a_reward_model_gives_one_number(tmp_path: Path):
    config = tiny_policy().model.config
    config.num_labels = 3
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="3 labels"):
        load_reward_model(tmp_path)
