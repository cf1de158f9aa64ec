"""Pick some groups of rollouts of one step to look at, in bounded memory.

A rollout file is read twice: once for an outline of its first groups, once for the text of the chosen ones. The choice
is for variety, not at random: where they exist, groups that are partly accepted come first, then one that failed
as a whole, then one that was accepted as a whole. Answers to alignment samples are not among them (`cases.py`). Nothing
is escaped here; the template does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from autoclave.core.errors import DataError
from autoclave.runs.rollouts import RecordedRollout, read_rollouts, step_of, varied

SCANNED_ROLLOUTS = 2048
"""Rollouts of a file that are searched for groups."""
SHOWN_SIBLINGS = 16
"""Most rollouts shown of a group."""
SHOWN_CHARACTERS = 6000
"""Most characters shown of a prompt or a response."""


@dataclass(frozen=True, slots=True)
class SampledGroup:
    """Rollouts of one problem in one step, in order of their sample."""

    item: str
    prompt: str
    rollouts: tuple[RecordedRollout, ...]
    num_accepted: int
    num_rollouts: int

    @property
    def open_rollouts(self) -> list[RecordedRollout]:
        """The first that was accepted and the first that failed; the others unfold on a click."""
        outcomes = [rollout.outcome for rollout in self.rollouts]
        return [self.rollouts[outcomes.index(outcome)] for outcome in ("accepted", "failed") if outcome in outcomes]


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The groups chosen from one rollout file."""

    step: int
    groups: tuple[SampledGroup, ...]


def sample_step(path: Path, num_groups: int) -> SampledStep:
    """At most `num_groups` groups of the rollout file at `path`. A file that was cut gives what is readable of it."""
    outlines: dict[str, list[bool]] = {}
    for rollout in _rollouts(path):
        outlines.setdefault(rollout.group, []).append(rollout.is_accepted)
    chosen: dict[str, list[RecordedRollout]] = {name: [] for name in varied(outlines)[:num_groups]}
    for rollout in _rollouts(path):
        kept = chosen.get(rollout.group)
        if kept is not None and len(kept) < SHOWN_SIBLINGS:
            kept.append(rollout)
    return SampledStep(step_of(path), tuple(_group(rollouts, outlines[name]) for name, rollouts in chosen.items()))


def _rollouts(path: Path) -> Iterator[RecordedRollout]:
    with suppress(DataError):  # the file of a run that was killed while writing it
        programs = (rollout for rollout in read_rollouts(path) if rollout.record.get("alignment_sample") is None)
        yield from islice(programs, SCANNED_ROLLOUTS)


def _group(rollouts: Sequence[RecordedRollout], outline: Sequence[bool]) -> SampledGroup:
    ordered = sorted(rollouts, key=lambda rollout: rollout.sample or 0)
    return SampledGroup(ordered[0].item, ordered[0].prompt, tuple(ordered), sum(outline), len(outline))
