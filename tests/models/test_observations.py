"""What an episode adds between turns is encoded once, and is what the chat template would write there."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from autoclave.core import InputError
from autoclave.models import encode_observation, encode_prompt

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "<|begin|>{% for m in messages %}<|start|>{{ m['role'] }}<|sep|>\n\n{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|sep|>\n\n{% endif %}"
)
BRACKETS = (
    "<s>{% for m in messages %}{% if m['role'] == 'assistant' %} {{ m['content'] }}</s>"
    "{% else %}[INST] {{ m['content'] }} [/INST]{% endif %}{% endfor %}"
)
SPACED = BRACKETS.replace("}}</s>", "}} </s>")
ENDS = {CHATML: "<|im_end|>", LLAMA: "<|eot|>", BRACKETS: "</s>", SPACED: "</s>"}
REWORDING = (LLAMA, SPACED)
"""Templates that write what was said otherwise, where sampled tokens stay."""
QUESTION = ({"role": "user", "content": "Add 1 and 2."},)
TOLD = ({"role": "user", "content": "wrong answer:\n 3 != 4 "},)


@pytest.fixture(params=[CHATML, LLAMA, BRACKETS, SPACED], ids=["chatml", "llama", "brackets", "spaced"])
def chat(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    special = ["<|im_start|>", "<|begin|>", "<|start|>", "<|sep|>", "<s>", *ENDS.values()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=ENDS[request.param],
        additional_special_tokens=special,
        chat_template=request.param,
        clean_up_tokenization_spaces=False,
    )


def test_the_tokens_of_an_episode_are_those_of_its_text_in_the_chat_template(chat: PreTrainedTokenizerBase):
    said = "It is 4.\n"
    turn = chat(said, add_special_tokens=False)["input_ids"] + [chat.eos_token_id]
    prompt = encode_prompt(chat, QUESTION).tolist()
    observed = encode_observation(chat, QUESTION, TOLD, ended_by=turn[-1]).tolist()
    messages = [*QUESTION, {"role": "assistant", "content": said}, *TOLD]
    whole = chat.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    if chat.chat_template not in REWORDING:
        assert chat.decode(prompt + turn + observed) == whole.replace(f"] {said}", f"]{said}")  # a space to sample
    assert chat.decode(observed).count("wrong answer:\n 3 != 4") == 1


def test_a_turn_that_was_cut_gets_its_end_marker_as_an_observed_token(chat: PreTrainedTokenizerBase):
    ended = encode_observation(chat, QUESTION, TOLD, ended_by=chat.eos_token_id).tolist()
    cut = encode_observation(chat, QUESTION, TOLD, ended_by=None).tolist()
    assert cut[cut.index(chat.eos_token_id) :] == [chat.eos_token_id, *ended]
    assert not chat.decode(cut[: cut.index(chat.eos_token_id)]).strip()
    assert encode_observation(chat, QUESTION, TOLD, ended_by=ended[-1]).tolist() == cut


def test_a_template_that_rewrites_earlier_turns_is_refused(chat: PreTrainedTokenizerBase):
    kept = "{% if m.role != 'assistant' or loop.last %}{{ m.content }}{% endif %}"
    chat.chat_template = f"{{% for m in messages %}}{kept}{{% endfor %}}"
    with pytest.raises(InputError, match=r"writes a turn of the policy otherwise .* Fix: task.turns=1"):
        encode_observation(chat, QUESTION, TOLD, ended_by=None)
