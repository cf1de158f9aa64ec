"""Policies: Hugging Face causal language models, the embedded tiny one, and their log-probabilities (torch).

May import `algorithms`, `config`, `core`. Knows nothing of judges, tasks or workers.
"""

from autoclave.models.compatibility import require_same_architecture, require_same_tokens, require_targets
from autoclave.models.lora import load_adapter, plain_weights, save_adapter, with_adapter, without_adapter
from autoclave.models.policy import (
    Policy,
    encode_prompt,
    load_architecture,
    load_policy,
    load_tokenizer,
    resolve_device,
    save_policy,
)
from autoclave.models.scoring import response_scores
from autoclave.models.tiny import build_tiny_policy, tiny_architecture

__all__ = [
    "Policy",
    "build_tiny_policy",
    "encode_prompt",
    "load_adapter",
    "load_architecture",
    "load_policy",
    "load_tokenizer",
    "plain_weights",
    "require_same_architecture",
    "require_same_tokens",
    "require_targets",
    "resolve_device",
    "response_scores",
    "save_adapter",
    "save_policy",
    "tiny_architecture",
    "with_adapter",
    "without_adapter",
]
