"""Log-probabilities and entropies that a model gives to responses. No sampling, no optimiser."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from autoclave.models.token_log_probs import token_log_probs


def response_log_probs(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    response_mask: Tensor,
    *,
    temperature: float,
    entropy_gradient: bool = False,
    position_ids: Tensor | None = None,
    logits_chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each response token.

    Logits exist only where a response token is predicted, not for prompts and padding, and of at most `logits_chunk`
    tokens at a time. Where that takes several chunks, the backward pass computes the logits of each again.

    Args:
        model: a causal language model whose logits are its output embedding of the last hidden state.
        input_ids: (B, L) int64, prompt and response, padded on the right; or (1, M), sequences one after the other.
        attention_mask: (B, L) int64, 1 on real tokens; None for sequences one after the other.
        response_mask: (B, L) bool, True on response tokens; never on the first of a sequence.
        temperature: divides the logits; that of sampling.
        entropy_gradient: whether the entropies carry a gradient.
        position_ids: (B, L) int64. Without an attention mask, a sequence begins where they do not go on by 1.
        logits_chunk: most tokens whose logits exist at a time; None for all.

    Returns:
        Two (N,) float32 tensors in row-major order of `response_mask`; natural logarithms, and nats.
    """
    hidden = model.base_model(
        input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
    ).last_hidden_state
    head: nn.Module = model.get_output_embeddings()  # pyright: ignore[reportAssignmentType]
    hidden, tokens = hidden[:, :-1][response_mask[:, 1:]], input_ids[response_mask]

    def scores(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return token_log_probs(head(hidden), tokens, temperature=temperature, entropy_gradient=entropy_gradient)

    if logits_chunk is None or len(tokens) <= logits_chunk:
        return scores(hidden, tokens)
    parts = [
        checkpoint(scores, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(hidden.split(logits_chunk), tokens.split(logits_chunk), strict=True)
    ]
    log_probs, entropies = zip(*parts, strict=True)
    return torch.cat(log_probs), torch.cat(entropies)
