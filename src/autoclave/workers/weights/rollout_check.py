"""Log-probs of real rollouts, trainer against sampler, compared with what the staleness of their weights explains.

Tokens of the weights that the trainer scores with may differ by rounding alone. Older ones differ by what was trained
since, but whatever that was, a token drawn from the distribution p that the sampler reports has

    E [q(token) / p(token)] = 1   and   E [log q(token) - log p(token)] = -KL(p || q) <= 0

given the tokens before it, under any other distribution q. Means that are away from that by more than chance show that
the sampler reports another distribution than it draws from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoclave.core import Completion, FaultError, Group
from autoclave.core.rollout import FloatArray
from autoclave.workers.weights.sync_check import mismatch

SIGMAS = 5.0
"""Standard errors of a mean that chance explains."""
SELECTION = 0.2
"""Share of the mean gap of older tokens by which their means may be off: only rollouts that train are scored, and
training changed those in one direction."""
ROUNDING = 3e-3
"""By which rounding may move these means."""


def rollout_mismatch(
    groups: Sequence[Group], trainer: Sequence[FloatArray | None], version: int | None, limit: float | None
) -> dict[str, float]:
    """Compare the log-probs of the rollouts in `groups` with `trainer`, (T,) of each in order or None.

    Args:
        groups: what was trained on.
        trainer: log-probs by the weights of `version`, before the update.
        version: of the weights that were published last.
        limit: mean gap in nats per token that rounding explains; None: nothing is required.

    Returns:
        Metrics over all tokens that the trainer scored: `mismatch/mean`, `mismatch/max`, `mismatch/k3` and
        `mismatch/ratio`, which is 1 but for chance. Nothing if there are none.

    Raises:
        FaultError: neither rounding nor staleness explains the gap; the message names sampler, numbers and fix.
    """
    completions = [rollout.completion for group in groups for rollout in group.rollouts]
    pairs = [(c, own) for c, own in zip(completions, trainer, strict=True) if own is not None and len(own)]
    if not pairs:
        return {}
    own = np.concatenate([log_probs for _, log_probs in pairs])
    theirs = np.concatenate([completion.log_probs for completion, _ in pairs])
    is_current = np.concatenate([_is_of(completion, version) for completion, _ in pairs])
    samplers = np.concatenate([[completion.sampled_by] * len(log_probs) for completion, log_probs in pairs])
    for sampler in dict.fromkeys(samplers.tolist()):
        for is_of_age in (is_current, ~is_current):
            chosen = is_of_age & (samplers == sampler)
            if limit is not None and chosen.any():
                age = version if is_of_age is is_current else None
                _require_explained(own[chosen], theirs[chosen], sampler, age, limit)
    found = mismatch(own, theirs)
    names = {"mean": found.mean, "max": found.max, "k3": found.k3, "ratio": _ratio(own, theirs)}
    return {f"mismatch/{name}": value for name, value in names.items()}


def _require_explained(own: FloatArray, theirs: FloatArray, sampler: str, version: int | None, limit: float) -> None:
    """Check tokens of one sampler, all of the weights of `version`, which the trainer has, or all of older ones."""
    found, gap = mismatch(own, theirs), own.astype(np.float64) - theirs
    slack = ROUNDING + (SELECTION * found.mean if version is None else 0)
    ratio, log_ratio = _ratio(own, theirs), float(gap.mean())
    by_chance = SIGMAS * _error(np.expm1(np.clip(gap, -20, 20)))
    if version is not None and not found.mean <= limit:
        why = f"rounding explains {limit:.2g}"
    elif abs(ratio - 1) > slack + by_chance:
        why = f"the mean importance ratio is {ratio:.4g}, and staleness leaves it at 1 +- {slack + by_chance:.2g}"
    elif log_ratio > slack + SIGMAS * _error(gap):
        why = (
            f"the trainer finds its tokens likelier, by {log_ratio:.2g} on average, and staleness makes them less "
            f"likely, or at most {slack + SIGMAS * _error(gap):.2g}"
        )
    else:
        return
    age = "older weights" if version is None else f"version {version}, which the trainer has,"
    raise FaultError(
        f"rollouts of sampler {sampler!r}: its log-probs of {found.tokens} tokens of {age} are off by {found.mean:.2g} "
        f"nats per token from the trainer's (at most {found.max:.2g}); {why}. The engine samples with other weights "
        "than were published, or reports log-probs of another distribution than it draws from (temperature, "
        "penalties, a cache of old weights). Fix: resume the run with new samplers; if it happens again, use another "
        "engine, or raise publish.sync_check.limit if the number formats explain it"
    )


def _ratio(own: FloatArray, theirs: FloatArray) -> float:
    return float(1 + np.expm1(np.clip(own.astype(np.float64) - theirs, -20, 20)).mean())


def _error(values: np.ndarray) -> float:
    """Standard error of the mean of `values`, each of mean 0 given those before."""
    return float(np.sqrt(np.square(values).sum()) / len(values))


def _is_of(completion: Completion, version: int | None) -> np.ndarray:
    """(T,) whether each token was sampled with the weights of `version`."""
    found = np.zeros(len(completion.tokens), dtype=bool)
    for stamped, start, stop in completion.policy_versions:
        found[start:stop] = stamped == version
    return found
