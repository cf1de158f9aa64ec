"""The embedded policy: a small Llama and a byte-level BPE tokenizer, both made here from nothing."""

from collections.abc import Iterable

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from autoclave.config import TinyModelConfig
from autoclave.models.policy import Policy, resolve_device

PAD, END, USER, ASSISTANT = "<pad>", "<end>", "<user>", "<assistant>"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>"
    "{% else %}<user>{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_tiny_policy(config: TinyModelConfig, texts: Iterable[str], *, seed: int, device: str = "auto") -> Policy:
    """A policy with random weights, and a tokenizer trained on `texts` (prompts and responses)."""
    core = _train_tokenizer(texts, config.vocabulary)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    shape = tiny_architecture(config, len(tokenizer))
    shape.pad_token_id, shape.eos_token_id = core.token_to_id(PAD), core.token_to_id(END)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(shape)
    model.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    return Policy(model.eval(), tokenizer)


def tiny_architecture(config: TinyModelConfig, vocabulary: int) -> LlamaConfig:
    """The shape of the policy, for a tokenizer with so many tokens."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=config.hidden_size,
        intermediate_size=config.hidden_size * 8 // 3,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def _train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE. Pieces end at digits and lines only: frequent phrases become one token, and sequences are short.

    Digits stand alone, so that every number is spelled the same way wherever it stands.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\n[ ]*|[^\d\n]+"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return core
