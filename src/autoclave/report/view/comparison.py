"""Rollouts of one problem side by side: samples of the same number, and the lines in which two responses differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from autoclave.report.view.shown import ShownGroup, ShownRollout

COMPARED_LINES = 200
"""Most lines of a response that are compared: the time for it grows with their product."""
CONTEXT_LINES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a difference: `kept`, `removed`, `added`, or `skipped` for equal lines that are left out."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """The same sample of both; one may be missing. `difference` is None where there is nothing to compare."""

    before: ShownRollout | None
    after: ShownRollout | None
    difference: Sequence[Line] | None

    @property
    def both(self) -> list[ShownRollout]:
        return [rollout for rollout in (self.before, self.after) if rollout]


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """One problem in two sources."""

    before: ShownGroup
    after: ShownGroup
    pairs: Sequence[Pair]

    @property
    def open_pair(self) -> Pair:
        """The first whose verdict changed, else the first; the others unfold on a click."""
        return next((pair for pair in self.pairs if len({shown.status for shown in pair.both}) > 1), self.pairs[0])


def compared(before: ShownGroup, after: ShownGroup) -> ComparedGroup:
    """Samples of one number stand together: with one seed they had the same random numbers."""
    befores = {rollout.sample: rollout for rollout in before.rollouts}
    afters = {rollout.sample: rollout for rollout in after.rollouts}
    samples = sorted({*befores, *afters}, key=lambda sample: -1 if sample is None else sample)
    return ComparedGroup(before, after, [_pair(befores.get(sample), afters.get(sample)) for sample in samples])


def _pair(before: ShownRollout | None, after: ShownRollout | None) -> Pair:
    if before is None or after is None or before.response == after.response:
        return Pair(before, after, None)
    return Pair(before, after, list(difference(before.response, after.response)))


def difference(before: str, after: str) -> Iterator[Line]:
    """The lines that change from `before` to `after`, with some around them that do not."""
    old, new = before.split("\n"), after.split("\n")
    cut_old, cut_new = old[:COMPARED_LINES], new[:COMPARED_LINES]
    matcher = SequenceMatcher(None, cut_old, cut_new, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        yield from _skipped(group[0][1] - end)
        for kind, old_start, old_stop, new_start, new_stop in group:
            if kind == "equal":
                yield from (Line("kept", text) for text in cut_old[old_start:old_stop])
                continue
            yield from (Line("removed", text) for text in cut_old[old_start:old_stop])
            yield from (Line("added", text) for text in cut_new[new_start:new_stop])
        end = group[-1][2]
    yield from _skipped(len(cut_old) - end)
    if max(len(old), len(new)) > COMPARED_LINES:
        yield Line("skipped", f"lines after the first {COMPARED_LINES} are not compared")


def _skipped(count: int) -> Iterator[Line]:
    if count > 0:
        yield Line("skipped", f"{count} equal line" + ("s" if count > 1 else ""))
