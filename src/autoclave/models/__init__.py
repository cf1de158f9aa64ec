"""Policies, critics and reward models in Hugging Face form, the embedded tiny policy, and what they say (torch).

May import `algorithms`, `config`, `core`. Knows nothing of judges, tasks or workers.
"""

from autoclave.core.lazy import lazily
from autoclave.models.attention import Layout as Layout
from autoclave.models.attention import apply_liger as apply_liger
from autoclave.models.attention import layout_for as layout_for
from autoclave.models.attention import require_full_attention as require_full_attention
from autoclave.models.attention import require_liger as require_liger
from autoclave.models.compatibility import INCIDENTAL as INCIDENTAL
from autoclave.models.compatibility import adapter_shapes as adapter_shapes
from autoclave.models.compatibility import require_same_vocabulary as require_same_vocabulary
from autoclave.models.compatibility import require_targets as require_targets
from autoclave.models.digests import Digest as Digest
from autoclave.models.digests import WeightShard as WeightShard
from autoclave.models.digests import digests as digests
from autoclave.models.digests import joined_digests as joined_digests
from autoclave.models.heads import HeadModel as HeadModel
from autoclave.models.heads import HeadRole as HeadRole
from autoclave.models.heads import load_critic as load_critic
from autoclave.models.heads import load_head_tokenizer as load_head_tokenizer
from autoclave.models.heads import load_reward_model as load_reward_model
from autoclave.models.heads import response_values as response_values
from autoclave.models.heads import sequence_scores as sequence_scores
from autoclave.models.lora import adapter_scale as adapter_scale
from autoclave.models.lora import added as added
from autoclave.models.lora import is_of_adapter as is_of_adapter
from autoclave.models.lora import parts_of as parts_of
from autoclave.models.lora import plain_weights as plain_weights
from autoclave.models.lora import save_adapter as save_adapter
from autoclave.models.lora import with_adapter as with_adapter
from autoclave.models.lora import without_adapter as without_adapter
from autoclave.models.lora import write_matrices as write_matrices
from autoclave.models.policy import Policy as Policy
from autoclave.models.policy import context_of as context_of
from autoclave.models.policy import encode_observation as encode_observation
from autoclave.models.policy import encode_prompt as encode_prompt
from autoclave.models.policy import load_architecture as load_architecture
from autoclave.models.policy import load_policy as load_policy
from autoclave.models.policy import load_tokenizer as load_tokenizer
from autoclave.models.policy import resolve_device as resolve_device
from autoclave.models.policy import save_model as save_model
from autoclave.models.policy import takes_tools as takes_tools
from autoclave.models.response_log_probs import response_log_probs as response_log_probs
from autoclave.models.stored import WeightViews as WeightViews
from autoclave.models.stored import read_part as read_part
from autoclave.models.tiny import build_tiny_policy as build_tiny_policy
from autoclave.models.tiny import tiny_architecture as tiny_architecture

__getattr__ = lazily(__name__)
