"""Attention over sequences that stand one after the other in a row: by a kernel where there is one, else by a mask.

Without an attention mask, the models of `transformers` see from the positions where a sequence begins. FlashAttention 2
then computes each sequence by itself; other attention gets a mask that lets no sequence see another.
"""

from __future__ import annotations

from typing import Literal

import torch
from transformers import PreTrainedModel
from transformers.utils.import_utils import is_flash_attn_2_available

FLASH_ATTENTION = "flash_attention_2"
FLASH_DTYPES = (torch.bfloat16, torch.float16)


def can_pack(
    model: PreTrainedModel, packing: Literal["auto", "always", "never"], device: torch.device, dtype: torch.dtype
) -> bool:
    """Return whether micro-batches for `model` are packed; it is given the kernel for that, where there is one.

    Args:
        model: changed in place.
        packing: `auto` packs where there is a kernel.
        device: where it will compute.
        dtype: number format in which it will.
    """
    if packing == "never":
        return False
    if device.type == "cuda" and dtype in FLASH_DTYPES and is_flash_attn_2_available():
        model.set_attn_implementation(FLASH_ATTENTION)
        return True
    return packing == "always"
