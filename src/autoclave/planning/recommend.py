"""Recommendation of a schedule and a split of devices, from rates that a short calibration measured.

    rates    = Rates(token_ms=..., batch_slope=..., ...)             token times from `fit_token_time`
    profile  = measured_profile(rates, Observed(tokens, reward_s), devices=8, groups=32, minibatches=4)
    advice   = recommend(profile, every_split(8))                    or the one split that the pools of the run have
    print(describe(advice))

Nothing here measures; `autoclave plan` and tests hand in what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autoclave.core import ConfigError
from autoclave.core.timeline import Role
from autoclave.planning.candidates import STALENESS, Candidate, simulate_each
from autoclave.planning.collected import Assignment
from autoclave.planning.profile import Profile
from autoclave.planning.simulation import ScheduleName, Split

CLOSE_SHARE = 0.02
"""Candidates that take at most so much longer than the fastest count as equally fast."""


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
    staleness: Sequence[int] = STALENESS,
    overlap_slowdown: float = 1.0,
    assignment: Assignment = Assignment.ROUND_ROBIN,
) -> Advice:
    """Simulate every schedule on every split; arguments as of `simulate_each`.

    Raises:
        ConfigError: there is no split.
    """
    return advise(
        simulate_each(profile, splits, staleness=staleness, overlap_slowdown=overlap_slowdown, assignment=assignment)
    )


def advise(candidates: Iterable[Candidate]) -> Advice:
    """Recommend one of them.

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
