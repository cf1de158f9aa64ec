"""Which schedule and split of devices to take, from rates that a short calibration measured.

    rates    = Rates(token_ms=..., batch_slope=..., ...)             token times from `fit_token_time`
    profile  = measured_profile(rates, Observed(tokens, reward_s), devices=8, groups=32, minibatches=4)
    advice   = recommend(profile, every_split(8))                    or the one split that the pools of the run have
    print(describe(advice))

Nothing here measures; `autoclave plan` and tests hand in what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoclave.core import ConfigError
from autoclave.core.rollout import IntArray
from autoclave.core.timeline import Role
from autoclave.training.planning.candidates import Candidate, simulate_each
from autoclave.training.planning.collected import Dealing
from autoclave.training.planning.profile import Profile, Work
from autoclave.training.planning.simulation import ScheduleName, Split

CLOSE_SHARE = 0.02
"""Candidates that take at most so much longer than the fastest count as equally fast."""


@dataclass(frozen=True, slots=True)
class TokenTime:
    """How long a token takes: token_ms (1 + batch_slope n) with n requests running."""

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
    """What a calibration measured; the times are those of `Profile`, of one device."""

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


@dataclass(frozen=True, slots=True)
class Advice:
    """All candidates, the fastest first, and the one to take."""

    candidates: Sequence[Candidate]
    chosen: Candidate

    def of(self, schedule: ScheduleName, split: Split, max_staleness: int | None = None) -> Candidate:
        """The candidate for a run that goes otherwise; without `max_staleness` the first of its name.

        Raises:
            ConfigError: it was not simulated.
        """
        for candidate in self.candidates:
            same = candidate.schedule is schedule and candidate.split == split
            if same and max_staleness in (None, candidate.max_staleness):
                return candidate
        raise ConfigError(
            f"{schedule} {split}: was not simulated; known are {', '.join(c.name for c in self.candidates)}"
        )


def recommend(
    profile: Profile,
    splits: Iterable[Split],
    *,
    staleness: Sequence[int] = (1, 2, 4),
    overlap_slowdown: float = 1.0,
    dealing: Dealing = Dealing.ROUND_ROBIN,
) -> Advice:
    """Simulate every schedule on every split; arguments as of `simulate_each`.

    Raises:
        ConfigError: there is no split.
    """
    return advise(
        simulate_each(profile, splits, staleness=staleness, overlap_slowdown=overlap_slowdown, dealing=dealing)
    )


def advise(candidates: Iterable[Candidate]) -> Advice:
    """Which of them to take.

    Chosen is, of those within `CLOSE_SHARE` of the least seconds per steady iteration, the one whose samples are
    nearest to the policy that learns from them, and of these the fastest.

    Raises:
        ConfigError: there is none.
    """
    found = sorted(candidates, key=lambda candidate: candidate.run.steady_s)
    if not found:
        raise ConfigError("splits: there is none; give at least one")
    close = [each for each in found if each.run.steady_s <= found[0].run.steady_s * (1 + CLOSE_SHARE)]
    order = list(ScheduleName)
    chosen = min(close, key=lambda each: (each.max_staleness, order.index(each.schedule), each.run.steady_s))
    return Advice(found, chosen)


def describe(advice: Advice, rows: int = 12) -> str:
    """The first `rows` candidates as a table, the one to take marked."""
    return "\n".join(_lines(advice, rows))


def _lines(advice: Advice, rows: int) -> Iterator[str]:
    columns = ("s / iteration", "sampler", "judge", "trainer", "rewards hid", "training hid")
    yield f"{'':<32}" + "".join(f"{column:>15}" for column in columns)
    shown = [*advice.candidates[:rows], *(each for each in advice.candidates[rows:] if each is advice.chosen)]
    for candidate in shown:
        run = candidate.run
        shares = (
            run.sampler_device_share(),
            run.busy_share(Role.JUDGE),
            run.busy_share(Role.TRAINER),
            run.hidden_reward_share(),
            run.hidden_training_share(),
        )
        mark = "->" if candidate is advice.chosen else ""
        yield f"{mark:<3}{candidate.name:<29}{run.steady_s:>15.4g}" + "".join(f"{share:>15.0%}" for share in shares)
    if len(shown) < len(advice.candidates):
        yield f"   and {len(advice.candidates) - len(shown)} slower ones"
