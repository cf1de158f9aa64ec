"""Hidden states of a model at some tokens, in every layer (torch). No sampling, no optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel


@torch.no_grad()
def hidden_states_at(model: PreTrainedModel, tokens: Sequence[int], places: Sequence[int]) -> Tensor:
    """Hidden states at `places` of one sequence, by one forward pass over all of it.

    Args:
        model: a causal language model in Hugging Face form.
        tokens: (T,) ids of the whole sequence.
        places: (N,) indices into it.

    Returns:
        (N, L, D) float32 on the CPU. Layer 0 is the embedding; the last is what the output head reads, in most models
        behind a final norm.
    """
    ids = torch.tensor([list(tokens)], device=model.device)
    layers = model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
    return torch.stack([layer[0, list(places)] for layer in layers], 1).float().cpu()
