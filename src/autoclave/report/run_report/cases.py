"""Pick a few answers to alignment samples from the last steps to look at, right and wrong ones, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from autoclave.core.errors import DataError
from autoclave.report.cases import ShownAlignmentSample, ShownAnswer, shown_alignment_sample, shown_answer
from autoclave.report.text import shortened
from autoclave.runs.rollouts import RecordedRollout, read_rollouts, step_of
from autoclave.tasks.execution_semantics import BAD_FORMAT, EXACT, PARTLY, WRONG

WANTED = {WRONG: 2, PARTLY: 1, BAD_FORMAT: 1, EXACT: 2}
"""Cases of each reason, in the order of the page."""
SCANNED_FILES = 3
SCANNED_ALIGNMENT_SAMPLES = 2048
"""Rollouts of a file that are searched for cases."""
SHOWN_RESPONSE = 2000
"""Most characters shown of an answer."""


@dataclass(frozen=True, slots=True)
class SampledCase:
    """One answer to one alignment sample."""

    step: int
    item: str
    reason: str
    reward: float | None
    alignment_sample: ShownAlignmentSample
    answer: ShownAnswer
    response: str


def sample_cases(files: Sequence[Path]) -> list[SampledCase]:
    """The first cases of each reason in the latest of `files`, which are in order of their step; no alignment sample
    twice.
    """
    chosen: list[SampledCase] = []
    counts: Counter[str] = Counter()
    for path in list(reversed(files))[:SCANNED_FILES]:
        seen: set[str] = set()
        for rollout in _answers(path):
            reason = rollout.reason or ""
            if counts[reason] >= WANTED.get(reason, 0) or rollout.group in seen:
                continue
            if (case := _case(step_of(path), rollout)) is not None:
                chosen.append(case)
                counts[reason] += 1
                seen.add(rollout.group)
    order = list(WANTED)
    return sorted(chosen, key=lambda case: order.index(case.reason))


def _answers(path: Path) -> Iterator[RecordedRollout]:
    with suppress(DataError):  # the file of a run that was killed while writing it
        answers = (rollout for rollout in read_rollouts(path) if rollout.record.get("alignment_sample") is not None)
        yield from islice(answers, SCANNED_ALIGNMENT_SAMPLES)


def _case(step: int, rollout: RecordedRollout) -> SampledCase | None:
    """None if its alignment sample is damaged."""
    try:
        alignment_sample, answer = rollout.alignment_sample, shown_answer(rollout)
    except DataError:
        return None
    if alignment_sample is None or answer is None:
        return None
    return SampledCase(
        step,
        rollout.item,
        rollout.reason or "",
        rollout.reward,
        shown_alignment_sample(alignment_sample),
        answer,
        shortened(rollout.response, SHOWN_RESPONSE),
    )
