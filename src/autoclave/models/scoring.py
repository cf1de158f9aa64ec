"""Log-probabilities and entropies that a model gives to responses. No sampling, no optimiser."""

from __future__ import annotations

from torch import Tensor, nn
from transformers import PreTrainedModel

from autoclave.algorithms import entropy, token_log_probs


def response_scores(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor,
    response_mask: Tensor,
    *,
    temperature: float,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each response token.

    Logits exist only where a response token is predicted, not for prompts and padding.

    Args:
        model: a causal language model whose logits are its output embedding of the last hidden state.
        input_ids: (B, L) int64, prompt and response, padded on the right.
        attention_mask: (B, L) int64, 1 on real tokens.
        response_mask: (B, L) bool, True on response tokens; never on the first column.
        temperature: divides the logits; that of sampling.
        entropy_gradient: whether the entropies carry a gradient.

    Returns:
        Two (N,) float32 tensors in row-major order of `response_mask`; natural logarithms, and nats.
    """
    hidden = model.base_model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    head: nn.Module = model.get_output_embeddings()  # pyright: ignore[reportAssignmentType]
    logits = head(hidden[:, :-1][response_mask[:, 1:]])  # (N, V)
    log_probs = token_log_probs(logits, input_ids[response_mask], temperature=temperature)
    return log_probs, entropy(logits if entropy_gradient else logits.detach(), temperature=temperature)
