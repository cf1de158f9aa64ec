"""What an episode adds between turns is encoded once, and is what the chat template would write there."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from autoclave.core import InputError
from autoclave.models import encode_observation, encode_prompt, takes_tools

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
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{% if m['role'] == 'tool' %}user\n<tool_response>\n{{ m['content'] }}\n"
    "</tool_response>{% else %}{{ m['role'] }}\n{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    + CHATML
)
ALTERNATING = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + CHATML
)
SPACED = BRACKETS.replace("}}</s>", "}} </s>")
ENDS = {
    CHATML: "<|im_end|>",
    HERMES: "<|im_end|>",
    STRICT: "<|im_end|>",
    ALTERNATING: "<|im_end|>",
    LLAMA: "<|eot|>",
    BRACKETS: "</s>",
    SPACED: "</s>",
}
REWORDING = (LLAMA, SPACED)
"""Templates that write what was said otherwise, where sampled tokens stay."""
QUESTION = ({"role": "user", "content": "Add 1 and 2."},)
TOLD = ({"role": "user", "content": "wrong answer:\n 3 != 4 "},)


@pytest.fixture(params=[CHATML, LLAMA, BRACKETS, SPACED], ids=["chatml", "llama", "brackets", "spaced"])
def chat(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return tokenizer_of(request.param)


def tokenizer_of(template: str) -> PreTrainedTokenizerBase:
    special = ["<|im_start|>", "<|begin|>", "<|start|>", "<|sep|>", "<s>", *ENDS.values()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=ENDS[template],
        additional_special_tokens=special,
        chat_template=template,
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


def test_names_of_control_tokens_that_are_read_are_text(chat: PreTrainedTokenizerBase):
    def controls(content: str) -> int:
        ids = encode_observation(chat, QUESTION, ({"role": "user", "content": content},), ended_by=None)
        return sum(int(each) in chat.all_special_ids for each in ids)

    assert controls("".join(chat.all_special_tokens)) == controls("nothing")


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


RESULT = ({"role": "tool", "content": "3\n"},)
TOOL = {"type": "function", "function": {"name": "shell", "description": "", "parameters": {}}}


def test_results_of_tools_are_written_as_the_template_writes_them_or_as_a_users():
    said = [*QUESTION, {"role": "assistant", "content": "turn"}]
    for template in (CHATML, HERMES):
        tokenizer = tokenizer_of(template)
        whole = tokenizer.apply_chat_template([*said, *RESULT], add_generation_prompt=True, tokenize=False)
        observed = tokenizer.decode(encode_observation(tokenizer, QUESTION, RESULT, ended_by=None))
        assert whole.endswith(observed.removeprefix("<|im_end|>"))
        assert ("tool\n3\n" if template == CHATML else "<tool_response>\n3\n") in observed
    tokenizer = tokenizer_of(STRICT)
    assert "user\n3\n" in tokenizer.decode(encode_observation(tokenizer, QUESTION, RESULT, ended_by=None))


def test_several_results_are_one_message_where_roles_must_alternate_and_other_refusals_are_named():
    tokenizer = tokenizer_of(ALTERNATING)
    two = (*RESULT, {"role": "tool", "content": "4"})
    assert "user\n3\n\n\n4<|im_end|>" in tokenizer.decode(encode_observation(tokenizer, QUESTION, two, ended_by=None))
    with pytest.raises(InputError, match=r"refuses messages of user, assistant, user, user \(roles must alternate\)"):
        encode_observation(tokenizer, QUESTION, (*TOLD, *TOLD), ended_by=None)


def test_tools_stand_in_the_prompt_alone_and_in_templates_that_have_a_place_for_them():
    assert [takes_tools(tokenizer_of(template)) for template in (HERMES, CHATML, BRACKETS)] == [True, False, False]
    tokenizer = tokenizer_of(HERMES)
    assert '"shell"' in tokenizer.decode(encode_prompt(tokenizer, QUESTION, [TOOL]))
    with_tools, without = (
        encode_observation(tokenizer, QUESTION, RESULT, ended_by=None, tools=tools).tolist() for tools in ([TOOL], [])
    )
    assert with_tools == without
