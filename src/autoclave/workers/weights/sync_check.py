"""Check of what samplers compute after a publish: both sides score the same tokens, and must agree.

Every sampler answers a few fixed prompts, and the trainer scores what it said. `verification` compares the weights
themselves; here a copy that an engine keeps beside them shows, and an engine that cannot report its weights.
"""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoclave.core import Completion, FaultError, Group
from autoclave.core.rollout import FloatArray, IntArray
from autoclave.rollout import Request, SamplingParameters
from autoclave.workers.batch import Batch
from autoclave.workers.group import WorkerGroup
from autoclave.workers.sampler.pool import SamplerPool

LIMITS = {"float32": 1e-4, "float64": 1e-4, "float16": 0.02, "bfloat16": 0.1}
"""Mean gap in nats per token that rounding explains, by the coarser number format of the two sides."""
MAX_OVER_MEAN = 10.0
"""The largest gap may be this many times the limit of the mean."""
OVER_PROBE = 5.0
"""Rollouts of the same weights may be off by this many times the largest gap of the prompts, and `OVER_LIMIT`."""
OVER_LIMIT = 0.2
"""Share of the limit; in float32, all of it."""
MOVED = 0.3
"""Share of the limit by which the trainer's mean log-prob of equal answers may have moved."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Difference between the log-probs of two sides, in nats per token, over `tokens` tokens."""

    mean: float
    """Of the absolute differences."""
    max: float
    """Of the absolute differences."""
    k3: float
    """Estimate of KL(sampler || trainer)."""
    tokens: int


def mismatch(trainer: FloatArray, sampler: FloatArray) -> Mismatch:
    """Compare the log-probs (N,) that two sides give the same N tokens.

        d = trainer - sampler,   mean = E |d|,   max = max |d|,   k3 = E [exp(d) - d - 1]

    A log-prob that is not finite is infinitely far from anything.

    Raises ValueError: they are not of the same tokens, or of none.

    Source: k3: Schulman, Approximating KL Divergence, 2020; the tokens are drawn by the sampler.
    """
    if trainer.shape != sampler.shape or trainer.ndim != 1 or not len(trainer):
        raise ValueError(f"log-probs of shape {trainer.shape} and {sampler.shape} must both be (N,), N > 0")
    if not (np.isfinite(trainer).all() and np.isfinite(sampler).all()):
        return Mismatch(np.inf, np.inf, np.inf, len(trainer))
    gap = trainer.astype(np.float64) - sampler
    with np.errstate(over="ignore"):
        k3 = float(np.mean(np.expm1(gap) - gap))
    return Mismatch(float(np.abs(gap).mean()), float(np.abs(gap).max()), k3, len(gap))


class SyncCheck:
    """A few fixed prompts, put to every sampler after a publish."""

    def __init__(
        self, prompts: Sequence[IntArray], *, temperature: float, tokens: int, limit: float, deadline_s: float
    ) -> None:
        """Prompts are token ids (P,) each.

        Args:
            prompts: a few short ones.
            temperature: that of the run, by which the trainer scores.
            tokens: how many to sample for each.
            limit: largest mean gap, in nats per token; the largest gap of a token may be ten times as much.
            deadline_s: how long samplers and trainer are waited for, in seconds.
        """
        parameters = SamplingParameters(temperature=temperature, max_new_tokens=tokens)
        self._requests = [Request(prompt, parameters, (0, number)) for number, prompt in enumerate(prompts)]
        self.limit, self._deadline_s = limit, deadline_s
        self._before: dict[str, tuple[list[Completion], FloatArray]] = {}
        """By sampler, its answers, and what the trainer scored when it gave them first."""
        self._largest = 0.0

    @property
    def explained(self) -> float:
        """Mean gap of rollouts of the trainer's own weights that rounding explains, by what was found so far."""
        return min(self.limit, OVER_PROBE * self._largest + max(OVER_LIMIT * self.limit, LIMITS["float32"]))

    def check(self, version: int, trainer: WorkerGroup[Any], samplers: SamplerPool) -> dict[str, float]:
        """Compare `trainer`, by its `log_probs`, with all `samplers`, which are to sample with `version` by now.

        Neither may change while this runs.

        Returns:
            Metrics over all samplers: `publish/mismatch_mean`, `publish/mismatch_max`, `publish/mismatch_k3`.

        Raises:
            FaultError: a sampler stamps another version, or the gap is above the limit, or its answers are equal to
                those before although the trainer's log-probs of them moved, or a worker does not answer in time. The
                message names version and sampler, likely causes and the fix.
        """
        asked = samplers.submit_to_each(self._requests)
        said = {name: self._answered(version, name, futures) for name, futures in asked.items()}
        for name, completions in said.items():
            _require_version(version, name, completions)
        everything = [completion for completions in said.values() for completion in completions]
        scores = self._scored(version, trainer, everything)
        start, found = 0, []
        for name, completions in said.items():
            own = np.concatenate([completion.log_probs for completion in completions])
            scored = scores[start : start + len(own)]
            found.append(mismatch(scored, own))
            start += len(own)
            self._require_moved(version, name, completions, scored)
            self._require_within(version, name, found[-1])
        self._largest = max([self._largest, *(each.mean for each in found)])
        return {
            "publish/mismatch_mean": max(each.mean for each in found),
            "publish/mismatch_max": max(each.max for each in found),
            "publish/mismatch_k3": max(each.k3 for each in found),
        }

    def _answered(self, version: int, name: str, futures: Sequence[Future[Completion]]) -> list[Completion]:
        if wait(futures, timeout=self._deadline_s).not_done:
            raise FaultError(
                f"sync check of version {version}: sampler {name!r} has not answered {len(futures)} requests after "
                f"{self._deadline_s:g} s"
            )
        return [future.result() for future in futures]

    def _scored(self, version: int, trainer: WorkerGroup[Any], completions: Sequence[Completion]) -> FloatArray:
        pairs = [(completion.prompt_tokens, completion.tokens) for completion in completions]
        call = trainer.log_probs(Batch.from_sequences(pairs, rows={}, responses={}))
        if wait([call], timeout=self._deadline_s).not_done:
            raise FaultError(
                f"sync check of version {version}: the trainer has not scored it after {self._deadline_s:g} s"
            )
        return call.result().responses["old_log_probs"]

    def _require_moved(self, version: int, name: str, completions: list[Completion], scored: FloatArray) -> None:
        before = self._before.get(name)
        if before is None or not _are_equal(before[0], completions):
            self._before[name] = completions, scored
            return
        moved = float(np.abs(scored - before[1]).mean())
        if not moved <= MOVED * self.limit:
            raise FaultError(
                f"sync check of version {version}: sampler {name!r} answers as before the publish: it did not take "
                f"the weights over, by which the trainer's log-probs of these answers moved by {moved:.2g} nats per "
                "token. Fix: resume the run with new samplers, and report the engine that says it has new weights"
            )

    def _require_within(self, version: int, name: str, found: Mismatch) -> None:
        if found.mean <= self.limit and found.max <= MAX_OVER_MEAN * self.limit:
            return
        raise FaultError(
            f"sync check of version {version}: the log-probs of sampler {name!r} differ by {found.mean:.2g} nats "
            f"per token (at most {found.max:.2g}, over {found.tokens} tokens) from the trainer's; the limit "
            f"is {self.limit:g}, and {MAX_OVER_MEAN * self.limit:g} for one token. Usual causes: the engine keeps a "
            "copy of some weight that it does not renew (packed or tied embeddings), a cache of old weights was not "
            "dropped, or the two compute in different number formats. Fix: resume the run with new samplers; if it is "
            "off at version after version, compare weight by weight, or raise publish.sync_check.limit if rounding is "
            "it"
        )


def _require_version(version: int, name: str, completions: Sequence[Completion]) -> None:
    stamped = {each for completion in completions for each, _, _ in completion.policy_versions}
    if stamped - {version}:
        raise FaultError(
            f"sync check of version {version}: sampler {name!r} stamps its tokens with version "
            f"{', '.join(map(str, sorted(stamped)))}; it missed a publish, and must be attached again"
        )


def _are_equal(before: Sequence[Completion], now: Sequence[Completion]) -> bool:
    return all(
        np.array_equal(one.tokens, other.tokens) and np.array_equal(one.log_probs, other.log_probs)
        for one, other in zip(before, now, strict=True)
    )


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
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    scored = [(rollout.turns, own) for rollout, own in zip(rollouts, trainer, strict=True) if own is not None]
    ends = [np.cumsum([len(turn.tokens) for turn in turns]) for turns, _ in scored]
    split = [zip(turns, np.split(own, end), strict=False) for (turns, own), end in zip(scored, ends, strict=True)]
    pairs = [(turn, own) for turns in split for turn, own in turns if len(own)]
    if not pairs:
        return {}
    own = np.concatenate([log_probs for _, log_probs in pairs])
    theirs = np.concatenate([completion.log_probs for completion, _ in pairs])
    is_current = np.concatenate([_is_of(completion, version) for completion, _ in pairs])
    names, lengths = zip(*((completion.sampled_by, len(log_probs)) for completion, log_probs in pairs), strict=True)
    for sampler in dict.fromkeys(names):
        is_own = np.repeat([name == sampler for name in names], lengths)
        for age, is_of_age in ((version, is_current), (None, ~is_current)):
            chosen = is_of_age & is_own
            if limit is not None and chosen.any():
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
