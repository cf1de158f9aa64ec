"""Log-probabilities and entropies of tokens from one softmax, with a gradient written out by hand.

The values are those of `algorithms.token_log_probs` and `algorithms.entropy`. Of the arrays as large as the logits only
one is kept for the backward pass, the logarithm of the softmax; autograd would keep several.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
