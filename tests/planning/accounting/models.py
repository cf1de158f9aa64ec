"""Small models with random weights, of every family that the plan knows."""

from __future__ import annotations

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

SIZES = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def models() -> dict[str, PreTrainedModel]:
    """One of each family, and the settings that add or remove parameters."""
    return {
        "llama": LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
        "llama, full heads": LlamaForCausalLM(LlamaConfig(**(SIZES | {"num_key_value_heads": 4}))),
        "llama, biases": LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
        "llama, tied": LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
        "llama, wide heads": LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=24)),
        "mistral": MistralForCausalLM(MistralConfig(**SIZES)),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "qwen3": Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16)),
        "starcoder2": Starcoder2ForCausalLM(Starcoder2Config(**SIZES)),
    }
