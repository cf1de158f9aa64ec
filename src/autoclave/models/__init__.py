"""Policies, critics and reward models in Hugging Face form, the embedded tiny policy, and what they say (torch).

May import `algorithms`, `config`, `core`. Knows nothing of judges, tasks or workers.
"""

from autoclave.models.heads import (
    HeadModel,
    HeadRole,
    load_critic,
    load_reward_model,
    require_same_tokens,
    response_values,
    save_head_model,
    sequence_scores,
)
from autoclave.models.policy import Policy, encode_prompt, load_policy, load_tokenizer, resolve_device, save_policy
from autoclave.models.scoring import response_scores
from autoclave.models.tiny import build_tiny_policy

__all__ = [
    "HeadModel",
    "HeadRole",
    "Policy",
    "build_tiny_policy",
    "encode_prompt",
    "load_critic",
    "load_policy",
    "load_reward_model",
    "load_tokenizer",
    "require_same_tokens",
    "resolve_device",
    "response_scores",
    "response_values",
    "save_head_model",
    "save_policy",
    "sequence_scores",
]
