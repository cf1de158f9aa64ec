"""Small profiles, and hypothesis strategies for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from autoclave.planning.profile import Profile, Work
from autoclave.planning.simulation import ScheduleName, Split

TWO_GROUPS = (Work(0, 2, 1.0), Work(1, 4, 1.0))
"""One response of 2 and one of 4 tokens; rewards of a second."""


def tiny(iterations: int | tuple[tuple[Work, ...], ...] = 1, **changes: Any) -> Profile:
    """TWO_GROUPS, on devices whose times can be worked out by hand.

    A token takes 1.5 s alone and 2 s beside another; so both have 2 tokens after 4 s, and 2 and 4 tokens after 7 s.
    """
    profile = Profile(
        profile="tiny",
        devices=2,
        slots=2,
        token_ms=1000.0,
        batch_slope=0.5,
        judge_slots=1,
        train_ms_per_token=500.0,
        mini_batches=2,
        sync_s=1.0,
        iterations=(TWO_GROUPS,) * iterations if isinstance(iterations, int) else iterations,
    )
    return replace(profile, **changes)


def works(reward_s: Sequence[float] = (0.0, 0.5, 3.0)) -> st.SearchStrategy[tuple[Work, ...]]:
    """1 to 4 groups of 1 to 4 responses, one after the other."""
    one = st.tuples(st.integers(1, 40), st.sampled_from(reward_s))
    groups = st.lists(st.lists(one, min_size=1, max_size=4), min_size=1, max_size=4)
    return groups.map(lambda all_: tuple(Work(g, *response) for g, group in enumerate(all_) for response in group))


def profiles(reward_s: Sequence[float] = (0.0, 0.5, 3.0)) -> st.SearchStrategy[Profile]:
    """1 to 5 iterations, on devices of many kinds."""
    return st.builds(
        Profile,
        profile=st.just("drawn"),
        devices=st.just(4),
        slots=st.integers(1, 4),
        token_ms=st.sampled_from((10.0, 100.0)),
        batch_slope=st.sampled_from((0.0, 0.1, 1.0)),
        judge_slots=st.integers(1, 3),
        train_ms_per_token=st.sampled_from((0.0, 5.0, 80.0)),
        mini_batches=st.integers(1, 3),
        sync_s=st.sampled_from((0.0, 0.25)),
        iterations=st.lists(works(reward_s), min_size=1, max_size=5).map(tuple),
    )


def divided() -> st.SearchStrategy[Split]:
    return st.builds(Split, st.integers(1, 3), st.integers(1, 3))


def ways() -> st.SearchStrategy[tuple[ScheduleName, Split, int]]:
    """A schedule, a split that it can run on, and a bound of staleness."""
    pipelines = st.tuples(st.sampled_from(ScheduleName), divided(), st.integers(0, 3))
    in_turns = st.tuples(st.just(ScheduleName.SYNCHRONOUS), st.integers(1, 3).map(Split.time_sharing), st.just(0))
    return pipelines | in_turns
