"""Policies, critics and reward models in Hugging Face form, the embedded tiny policy, and what they say (torch).

May import `algorithms`, `config`, `core`. Knows nothing of judges, tasks or workers.
"""

from autoclave.models.attention import (
    Layout,
    apply_liger,
    layout_for,
    require_full_attention,
    require_liger,
    shared_prompt_mask,
)
from autoclave.models.compatibility import (
    INCIDENTAL,
    adapter_shapes,
    require_same_vocabulary,
    require_targets,
)
from autoclave.models.digests import Digest, WeightShard, digests, joined_digests
from autoclave.models.heads import (
    HeadModel,
    HeadRole,
    load_critic,
    load_head_tokenizer,
    load_reward_model,
    response_values,
    save_head_model,
    sequence_scores,
)
from autoclave.models.lora import (
    Part,
    adapter_scale,
    added,
    is_of_adapter,
    merged,
    parts_of,
    plain_weights,
    save_adapter,
    with_adapter,
    without_adapter,
    write_matrices,
)
from autoclave.models.policy import (
    Policy,
    context_of,
    encode_prompt,
    load_architecture,
    load_policy,
    load_tokenizer,
    resolve_device,
    save_policy,
)
from autoclave.models.response_log_probs import response_log_probs
from autoclave.models.stored import WeightViews, read_part
from autoclave.models.tiny import build_tiny_policy, tiny_architecture

__all__ = [
    "INCIDENTAL",
    "Digest",
    "HeadModel",
    "HeadRole",
    "Layout",
    "Part",
    "Policy",
    "WeightShard",
    "WeightViews",
    "adapter_scale",
    "adapter_shapes",
    "added",
    "apply_liger",
    "build_tiny_policy",
    "context_of",
    "digests",
    "encode_prompt",
    "is_of_adapter",
    "joined_digests",
    "layout_for",
    "load_architecture",
    "load_critic",
    "load_head_tokenizer",
    "load_policy",
    "load_reward_model",
    "load_tokenizer",
    "merged",
    "parts_of",
    "plain_weights",
    "read_part",
    "require_full_attention",
    "require_liger",
    "require_same_vocabulary",
    "require_targets",
    "resolve_device",
    "response_log_probs",
    "response_values",
    "save_adapter",
    "save_head_model",
    "save_policy",
    "sequence_scores",
    "shared_prompt_mask",
    "tiny_architecture",
    "with_adapter",
    "without_adapter",
    "write_matrices",
]
