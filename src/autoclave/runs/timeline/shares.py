"""Busy time of each role, and the share of it that other roles hid. Pure.

A role is busy while at least one of its spans is under way. Time of the judge or the trainer is hidden while the
sampler is busy too: it costs a run nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoclave.core.timeline import Interval, Role, Span
from autoclave.core.intervals import clipped, gaps, intersection, seconds, union

WORKING = (Role.SAMPLER, Role.JUDGE, Role.TRAINER)
"""The roles that a run is made of, one of which is its bottleneck."""

HIDDEN = {"reward": Role.JUDGE, "trainer": Role.TRAINER}
"""Roles that sampling can hide, as metrics name them."""


@dataclass(frozen=True, slots=True)
class RoleTimes:
    """Seconds of a step, or of several: of the whole, of each role, of each role hidden by sampling, and its idle gaps.

    `longest_gap_s` and `num_gaps` are of the time in which a role had nothing under way.
    """

    window_s: float
    busy_s: Mapping[Role, float]
    hidden_s: Mapping[Role, float]
    longest_gap_s: Mapping[Role, float]
    num_gaps: Mapping[Role, int]

    def busy(self, role: Role) -> float:
        """Share of the time in which `role` was busy."""
        return self.busy_s[role] / self.window_s if self.window_s else 0.0

    def hidden(self, role: Role) -> float | None:
        """Share of the busy time of `role` that sampling hid; None if it had none."""
        return self.hidden_s[role] / self.busy_s[role] if self.busy_s[role] else None

    @property
    def bottleneck(self) -> Role:
        """The busiest of sampler, judge and trainer; the first of equals."""
        return max(WORKING, key=lambda role: self.busy_s[role])


def role_times(spans: Iterable[Span], window: Interval) -> RoleTimes:
    """The times of all roles within `window`, whichever steps the spans are of."""
    covered = busy_intervals(spans, window)
    sampling = covered[Role.SAMPLER]
    idle = {role: gaps(covered[role], window) for role in Role}
    return RoleTimes(
        window[1] - window[0],
        {role: seconds(covered[role]) for role in Role},
        {role: seconds(intersection(covered[role], sampling)) for role in Role},
        {role: max((end - start for start, end in idle[role]), default=0.0) for role in Role},
        {role: len(idle[role]) for role in Role},
    )


def busy_intervals(spans: Iterable[Span], window: Interval) -> dict[Role, list[Interval]]:
    """Intervals in which each role was busy within `window`."""
    by_role: defaultdict[Role, list[Interval]] = defaultdict(list)
    for span in spans:
        by_role[span.role].append(span.interval)
    return {role: union(clipped(by_role[role], window)) for role in Role}


def together(parts: Sequence[RoleTimes]) -> RoleTimes:
    """The times of several steps as those of one; a gap is never longer than its step."""
    return RoleTimes(
        sum(part.window_s for part in parts),
        {role: sum(part.busy_s[role] for part in parts) for role in Role},
        {role: sum(part.hidden_s[role] for part in parts) for role in Role},
        {role: max((part.longest_gap_s[role] for part in parts), default=0.0) for role in Role},
        {role: sum(part.num_gaps[role] for part in parts) for role in Role},
    )


def share_metrics(times: RoleTimes) -> dict[str, float]:
    """`busy/...` of sampler, judge and trainer; `hidden/...` of reward and trainer, where they took any time."""
    metrics = {f"busy/{role}": times.busy(role) for role in WORKING}
    shares = {f"hidden/{name}": times.hidden(role) for name, role in HIDDEN.items()}
    return metrics | {name: share for name, share in shares.items() if share is not None}
