"""From logits to log-probs of tokens and to entropies. Each token is computed by itself, so N may be cut in chunks.

Logits of lower precision are computed with in float32. A logit of -inf is a token that cannot be sampled.
"""

import torch
from torch import Tensor


def token_log_probs(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The natural logarithm of the probability with which each token would be sampled.

        log p(x) = z_x - logsumexp(z),   z = logits / temperature

    Args:
        logits: (N, V) float.
        tokens: (N,) int64, below V.
        temperature: of sampling, above 0.

    Returns:
        (N,) float32, or float64 for logits of float64.

    Raises:
        ValueError: the shapes do not fit, or the temperature is not above 0.
    """
    if logits.ndim != 2 or tokens.shape != logits.shape[:1]:
        raise ValueError(f"logits {tuple(logits.shape)} must be (N, V) and tokens {tuple(tokens.shape)} (N,)")
    scaled = _scaled(logits, temperature)
    return scaled.gather(1, tokens[:, None]).squeeze(1) - scaled.logsumexp(1)


def entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Entropy of the policy at each token: 0 if one token is certain, log V if all are equally likely.

        H = -sum over x of p(x) log p(x),   p = softmax(logits / temperature)

    Args:
        logits: (N, V) float.
        temperature: of sampling, above 0.

    Returns:
        (N,) float32, or float64 for logits of float64; in nats.

    Raises:
        ValueError: the shape does not fit, or the temperature is not above 0.
    """
    if logits.ndim != 2:
        raise ValueError(f"logits {tuple(logits.shape)} must be (N, V)")
    log_p = _scaled(logits, temperature).log_softmax(1)
    # p log p is 0 at p = 0; without the clamp it is 0 x -inf = NaN, in the gradient too.
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(1)


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature}: must be above 0")
    return logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
