"""Attention over sequences that stand one after the other in a row: by a kernel where there is one, else by a mask.

Without an attention mask, the models of `transformers` see from the positions where a sequence begins. FlashAttention 2
then computes each sequence by itself; other attention gets a mask that lets no sequence see another. Responses that
share their prompt get a mask of ours.
"""

from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

from autoclave.core import ConfigError, HostError
from autoclave.core.install import install_command

Layout = Literal["padded", "packed", "shared_prompts"]
"""Of a micro-batch: a row per sequence, all sequences in one row, or a row per prompt with all its responses."""

FLASH_ATTENTION = "flash_attention_2"
FLASH_DTYPES = (torch.bfloat16, torch.float16)


def layout_for(
    model: PreTrainedModel,
    packing: Literal["auto", "always", "never", "shared_prompts"],
    device: torch.device,
    dtype: torch.dtype,
) -> Layout:
    """Return how micro-batches for `model` are laid out; it is given the kernel for that, where there is one.

    Args:
        model: changed in place.
        packing: `auto` packs where there is a kernel.
        device: where it will compute.
        dtype: number format in which it will.
    """
    if packing == "shared_prompts":
        return packing
    if packing == "never":
        return "padded"
    if device.type == "cuda" and dtype in FLASH_DTYPES and is_flash_attn_2_available():
        model.set_attn_implementation(FLASH_ATTENTION)
        return "packed"
    return "packed" if packing == "always" else "padded"


def require_full_attention(architecture: PretrainedConfig) -> None:
    """Raise ConfigError if a layer of such a model is not full attention, whose mask `shared_prompts` replaces."""
    kinds = set(getattr(architecture, "layer_types", None) or ["full_attention"])
    window = None if hasattr(architecture, "layer_types") else getattr(architecture, "sliding_window", None)
    if kinds != {"full_attention"} or window:
        raise ConfigError(
            f"trainer.packing = shared_prompts: needs full attention in every layer, and this model "
            f"({architecture.model_type}) has others; use trainer.packing=auto"
        )


def shared_prompt_mask(owners: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask, to be added to attention scores, by which responses in one row see their prompt and themselves.

    Args:
        owners: (B, L) int64; 0 on the prompt, k > 0 on its k-th response, -1 on padding.
        dtype: number format of the scores.

    Returns:
        (B, 1, L, L); 0 where a token (third dimension) attends to another (fourth), else the lowest finite number.
    """
    columns = torch.arange(owners.shape[1], device=owners.device)
    is_seen = (owners[:, None, :] == 0) | (owners[:, :, None] == owners[:, None, :])
    is_seen &= columns[None, :, None] >= columns[None, None, :]
    mask = torch.zeros(is_seen.shape, dtype=dtype, device=owners.device)
    return mask.masked_fill_(~is_seen, torch.finfo(dtype).min)[:, None]


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
