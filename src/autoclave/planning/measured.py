"""From rates that were measured to a profile: what a token, a reward, learning and a publish take on one device.

`calibration.py` measures them on the timelines of runs; here they are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field

from autoclave.core import ConfigError
from autoclave.core.rollout import IntArray

_STRICT = ConfigDict(extra="forbid")
_Count = Annotated[int, Field(ge=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Work:
    """One response: how long it gets, and how long its reward takes."""

    __pydantic_config__ = _STRICT
    group: Annotated[int, Field(ge=0)]
    """Number of the prompt that it answers within its iteration."""
    tokens: _Count
    reward_s: _NotNegative


@dataclass(frozen=True, slots=True)
class Profile:
    """A workload and the devices it runs on; the module says what the times mean."""

    __pydantic_config__ = _STRICT
    profile: str
    """Its name."""
    devices: _Count
    """Of sampler and trainer together."""
    slots: _Count
    token_ms: _Positive
    batch_slope: _NotNegative
    judge_slots: _Count
    train_ms_per_token: _NotNegative
    mini_batches: _Count
    """Steps that an iteration is divided into by the minibatch pipeline."""
    sync_s: _NotNegative
    iterations: Annotated[tuple[Annotated[tuple[Work, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """Of each iteration the responses, in the order in which they are asked for."""

    def token_s(self, running: int) -> float:
        """Seconds of a token of each of `running` requests on one device."""
        return self.token_ms / 1e3 * (1 + self.batch_slope * running)

    def train_s(self, tokens: int, devices: int) -> float:
        """Seconds of learning from `tokens` on `devices`."""
        return tokens * self.train_ms_per_token / 1e3 / devices

    def slowed(self, factor: float) -> Profile:
        """The same work where sampler, judge and trainer take `factor` times as long."""
        slower = tuple(tuple(replace(w, reward_s=w.reward_s * factor) for w in part) for part in self.iterations)
        token_ms, train_ms = self.token_ms * factor, self.train_ms_per_token * factor
        return replace(self, token_ms=token_ms, train_ms_per_token=train_ms, iterations=slower)

    def of_at_least(self, iterations: int) -> Profile:
        """The same iterations, all of them again until there are so many."""
        return replace(self, iterations=self.iterations * -(-iterations // len(self.iterations)))


@dataclass(frozen=True, slots=True)
class TokenTime:
    """Time of a token: token_ms (1 + batch_slope n) with n requests running."""

    token_ms: float
    batch_slope: float
    worst_error: float
    """The largest relative error of a measured rate."""


def fit_token_time(tokens_per_s: Mapping[float, float]) -> TokenTime:
    """The token time that fits best, in relative error, to one device's tokens per second by requests running.

    With one measurement, or where more requests do not make a token slower, the slope is 0.

    Raises:
        ConfigError: nothing was measured, or a number is not positive.
    """
    if not tokens_per_s or any(batch < 1 or rate <= 0 for batch, rate in tokens_per_s.items()):
        raise ConfigError(f"tokens_per_s = {dict(tokens_per_s)}: must hold at least one batch and rate, all positive")
    batches = np.array(list(tokens_per_s), dtype=np.float64)
    measured = batches / np.array(list(tokens_per_s.values())) * 1e3  # ms of a token of each request
    design = np.stack([np.ones_like(batches), batches], axis=1) / measured[:, None]
    base, growth = np.linalg.lstsq(design, np.ones_like(measured), rcond=None)[0] if len(batches) > 1 else (0.0, 0.0)
    if growth <= 0:
        base, growth = len(batches) / (1 / measured).sum(), 0.0
    elif base < (least := float(measured.min()) * 1e-3):  # in proportion to the requests: the formula only comes close
        base, growth = least, float(((measured - least) / batches).mean())
    fitted = base + growth * batches
    return TokenTime(float(base), float(growth / base), float(np.abs(fitted / measured - 1).max()))


@dataclass(frozen=True, slots=True)
class Rates:
    """Measurements of a calibration; the times are those of `Profile`, of one device."""

    token_ms: float
    batch_slope: float
    slots: int
    judge_slots: int
    train_ms_per_token: float
    """Everything that learning does, over response tokens."""
    sync_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """Responses of N prompts with S samples each: `tokens` (N, S) int64, and `reward_s` (N, S) seconds of judging."""

    tokens: IntArray
    reward_s: np.ndarray

    def __post_init__(self) -> None:
        if self.tokens.ndim != 2 or self.tokens.shape != self.reward_s.shape or not self.tokens.size:
            raise ConfigError(
                f"tokens {self.tokens.shape} and reward_s {self.reward_s.shape} must both be "
                "(prompts, samples), with at least one of each"
            )


def measured_profile(
    rates: Rates,
    observed: Observed,
    *,
    devices: int,
    groups: int,
    minibatches: int,
    iterations: int = 8,
    seed: int = 0,
    name: str = "measured",
) -> Profile:
    """Iterations of `groups` prompts drawn with replacement from those observed, each with all its samples."""
    rng = np.random.default_rng(seed)

    def drawn() -> tuple[Work, ...]:
        chosen = enumerate(rng.integers(len(observed.tokens), size=groups))
        return tuple(
            Work(group, int(tokens), float(seconds))
            for group, prompt in chosen
            for tokens, seconds in zip(observed.tokens[prompt], observed.reward_s[prompt], strict=True)
        )

    return Profile(
        profile=name,
        devices=devices,
        slots=rates.slots,
        token_ms=rates.token_ms,
        batch_slope=rates.batch_slope,
        judge_slots=rates.judge_slots,
        train_ms_per_token=rates.train_ms_per_token,
        mini_batches=minibatches,
        sync_s=rates.sync_s,
        iterations=tuple(drawn() for _ in range(iterations)),
    )
