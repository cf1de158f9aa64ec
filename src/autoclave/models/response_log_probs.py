"""Log-probabilities and entropies that a model gives to responses. No sampling, no optimiser."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel


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
    predictors: Tensor | None = None,
    **attention: Any,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each response token.

    Logits exist only where a response token is predicted, not for prompts and padding, and of at most `logits_chunk`
    tokens at a time. Where that takes several chunks, the backward pass computes the logits of each again.

    Args:
        model: a causal language model whose logits are its output embedding of the last hidden state.
        input_ids: (B, L) int64, prompt and response, padded on the right; or (1, M), sequences one after the other.
        attention_mask: (B, L) int64, 1 on real tokens; None for sequences one after the other; or four dimensions,
            which the attention takes as they are.
        response_mask: (B, L) bool, True on response tokens; never on the first of a sequence.
        temperature: divides the logits; that of sampling.
        entropy_gradient: whether the entropies carry a gradient.
        position_ids: (B, L) int64. Without an attention mask, a sequence begins where they do not go on by 1.
        logits_chunk: most tokens whose logits exist at a time; None for all.
        predictors: (B, L) int64, the column whose hidden state predicts each response token; None: the one before it.
        attention: more that the attention of the model takes.

    Returns:
        Two (N,) float32 tensors in row-major order of `response_mask`; natural logarithms, and nats.
    """
    hidden = model.base_model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids,
        use_cache=False,
        **attention,
    ).last_hidden_state
    head: nn.Module = model.get_output_embeddings()  # pyright: ignore[reportAssignmentType]
    if predictors is None:
        hidden = hidden[:, :-1][response_mask[:, 1:]]
    else:
        hidden = hidden[response_mask.nonzero()[:, 0], predictors[response_mask]]
    tokens = input_ids[response_mask]

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


_LOWEST = -1e30
"""Stands for the log-prob -inf where it is multiplied with its probability 0."""


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each token, and entropy of the distribution that it is drawn from.

        log p(x) = z_x - logsumexp(z),   H = -sum over y of p(y) log p(y),   z = logits / temperature
        d log p(x) / d z_y = [x = y] - p(y),   d H / d z_y = -p(y) (log p(y) + H)

    Args:
        logits: (N, V) float; -inf is a token that cannot be drawn.
        tokens: (N,) int64, below V.
        temperature: of sampling, above 0.
        entropy_gradient: whether the entropies carry a gradient.

    Returns:
        Two (N,) float32 tensors, or float64 for logits of float64; natural logarithms, and nats. They can be derived
        once.
    """
    log_probs, entropies = _TokenLogProbs.apply(logits, tokens, temperature)  # pyright: ignore[reportGeneralTypeIssues]
    return log_probs, entropies if entropy_gradient else entropies.detach()


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        scaled = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if temperature != 1:
            scaled = scaled / temperature
        log_p = scaled.log_softmax(1)
        del scaled
        log_probs = log_p[torch.arange(len(tokens), device=tokens.device), tokens]  # a copy: log_p is changed below
        log_p.clamp_(min=_LOWEST)
        entropies = -log_p.exp().mul_(log_p).sum(1)
        ctx.save_for_backward(log_p, tokens, entropies)
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        ctx.set_materialize_grads(False)
        return log_probs, entropies

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        of_log_probs, of_entropies = gradients
        if of_log_probs is None and of_entropies is None:
            return None, None, None
        log_p, tokens, entropies = ctx.saved_tensors
        gradient = log_p.exp()
        weight = torch.zeros_like(entropies) if of_log_probs is None else of_log_probs / ctx.temperature
        if of_entropies is None:
            gradient *= -weight[:, None]
        else:
            factor = log_p + entropies[:, None]
            factor *= of_entropies[:, None] / ctx.temperature
            gradient *= factor.add_(weight[:, None]).neg_()
        gradient.scatter_add_(1, tokens[:, None], weight[:, None])
        return gradient.to(ctx.dtype), None, None


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
