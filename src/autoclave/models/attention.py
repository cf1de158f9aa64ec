"""Attention over sequences that stand one after the other in a row: by a kernel where there is one, else by a mask.

Without an attention mask, the models of `transformers` see from the positions where a sequence begins. FlashAttention 2
then computes each sequence by itself; other attention gets a mask that lets no sequence see another. Where responses
share their prompt, attention alone computes whole sequences, which are gathered from that row.
"""

from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig, PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from autoclave.core import ConfigError, HostError
from autoclave.core.install import install_command

Layout = Literal["padded", "packed", "shared_prompts"]
"""Of a micro-batch: a row per sequence, all sequences in one row, or the same with each prompt once."""

FLASH_ATTENTION = "flash_attention_2"
FLASH_DTYPES = (torch.bfloat16, torch.float16)
SHARED_PROMPTS = "autoclave_shared_prompts"
SHARING_FAMILIES = {"llama", "qwen2", "qwen3"}
"""Models that share prompts by default: their layers hand all keyword arguments to the attention, and it alone mixes
tokens."""
SHARING_WIDTH = 128
"""Least hidden size of such models; below, matrix products do not decide what a step takes."""


def layout_for(
    model: PreTrainedModel,
    packing: Literal["auto", "always", "never", "shared_prompts"],
    device: torch.device,
    dtype: torch.dtype,
) -> Layout:
    """Return how micro-batches for `model`, which is to compute there and so, are laid out; give it the attention."""
    shape = model.config
    gains = device.type == "cpu" and shape.model_type in SHARING_FAMILIES and shape.hidden_size >= SHARING_WIDTH
    if packing == "shared_prompts" or (packing == "auto" and gains and has_full_attention(shape)):
        model.set_attn_implementation(SHARED_PROMPTS)
        return "shared_prompts"
    if packing == "never":
        return "padded"
    if device.type == "cuda" and dtype in FLASH_DTYPES and is_flash_attn_2_available():
        model.set_attn_implementation(FLASH_ATTENTION)
        return "packed"
    return "packed" if packing == "always" else "padded"


def has_full_attention(architecture: PretrainedConfig) -> bool:
    """Return whether no layer of such a model is anything else."""
    kinds = set(getattr(architecture, "layer_types", None) or ["full_attention"])
    window = None if hasattr(architecture, "layer_types") else getattr(architecture, "sliding_window", None)
    return kinds == {"full_attention"} and not window


def require_full_attention(architecture: PretrainedConfig) -> None:
    """Raise ConfigError if a layer of such a model is not full attention, the only one that shares prompts."""
    if not has_full_attention(architecture):
        raise ConfigError(
            f"trainer.packing = shared_prompts: needs full attention in every layer, and this model "
            f"({architecture.model_type}) has others; use trainer.packing=auto"
        )


def _shared_prompt_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    shared: tuple[Tensor, Tensor] | None = None,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of PyTorch; with `shared`, of a row (1, heads, M, D) over the sequences that it holds.

    `shared` are `sequences` and `places` of `Batch.with_shared_prompts`; causal attention sees no padding on the right.
    """
    attend = AttentionInterface()["sdpa"]
    if shared is None:
        return attend(module, query, key, value, attention_mask, **settings)
    sequences, places = shared
    # The backward pass of `embedding` adds up rows much faster than that of an index.
    whole = [
        embedding(sequences, states[0].transpose(0, 1).flatten(1)).unflatten(2, (states.shape[1], -1)).transpose(1, 2)
        for states in (query, key, value)
    ]
    found, _ = attend(module, *whole, None, **settings)  # (B, L, heads, D)
    return embedding(places, found.flatten(2).flatten(0, 1))[None], None


AttentionInterface.register(SHARED_PROMPTS, _shared_prompt_attention)
AttentionMaskInterface.register(SHARED_PROMPTS, AttentionMaskInterface()["sdpa"])


def require_liger(device: torch.device) -> None:
    """Find out before models are loaded that liger-kernel cannot be used.

    Raises:
        ConfigError: the models run on another device than a GPU.
        HostError: the package is not installed.
    """
    if device.type != "cuda":
        raise ConfigError(
            f"trainer.liger = true: its kernels run on a GPU, and the models run on {device.type}; "
            "set trainer.liger=false, or model.device=cuda"
        )
    if find_spec("liger_kernel") is None:
        raise HostError(
            f"trainer.liger = true: liger-kernel is not installed. Fix: {install_command('liger')}, "
            "or set trainer.liger=false"
        )


def apply_liger(model: PreTrainedModel, device: torch.device) -> None:
    """Give `model`, which is to compute on `device`, the kernels that liger-kernel has for its family.

    Log-probs stay ours.

    Raises:
        ConfigError, HostError: as `require_liger`.
    """
    require_liger(device)
    from transformers.integrations.liger import apply_liger_kernel

    apply_liger_kernel(model, {"fused_linear_cross_entropy": False, "cross_entropy": False})
