"""Policies: Hugging Face causal language models, the embedded tiny one, and their log-probabilities (torch).

May import `algorithms`, `config`, `core`. Knows nothing of judges, tasks or workers.
"""

from autoclave.models.attention import can_pack
from autoclave.models.kernels import apply_liger, require_liger
from autoclave.models.policy import Policy, encode_prompt, load_policy, load_tokenizer, resolve_device, save_policy
from autoclave.models.scoring import response_scores
from autoclave.models.tiny import build_tiny_policy

__all__ = [
    "Policy",
    "apply_liger",
    "build_tiny_policy",
    "can_pack",
    "encode_prompt",
    "load_policy",
    "load_tokenizer",
    "require_liger",
    "resolve_device",
    "response_scores",
    "save_policy",
]
