"""Execution semantics in the report: how well alignment samples are answered, in training and held out.

Only of runs that have alignment samples, or evaluations of tasks about what programs do.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from autoclave.core.errors import DataError
from autoclave.report.cases import ShownAlignmentSample, ShownAnswer, shown_alignment_sample, shown_answer
from autoclave.report.charts import PALETTE, Axis, Figure, Interval, Line, line_figure
from autoclave.report.run_report.figures import (
    MARKED_POINTS,
    Curve,
    averaged,
    curves_figure,
    heldout_line,
    interval_of,
    series,
    step_axis,
)
from autoclave.report.text import shortened
from autoclave.runs.reader import Row, Run, number
from autoclave.runs.rollouts import RecordedRollout, read_rollouts, step_of
from autoclave.tasks.execution_semantics import BAD_FORMAT, EXACT, PARTLY, WRONG

TASKS = ("execution_semantics", "trace_inference", "output_prediction", "test_output_prediction")
"""In the order of the page; others follow."""
PROBLEMS = "held-out problems"
_KIND, _LENGTH = "alignment/accuracy/kind/", "alignment/accuracy/length/"
_METRICS = "alignment/"


@dataclass(frozen=True, slots=True)
class HeldoutRow:
    """One task at the first and the latest evaluation; None where there is none."""

    name: str
    items: int | None
    before: Interval | None
    after: Interval | None
    greedy_before: Interval | None
    greedy_after: Interval | None


@dataclass(frozen=True, slots=True)
class ExecutionSection:
    """Content of the section. `after` says when the second figures of rows were taken; empty if there are none."""

    figures: Sequence[Figure]
    rows: Sequence[HeldoutRow]
    after: str
    has_alignment_samples: bool
    """In training, so that there are cases to look at."""
    cases: "Sequence[SampledCase]"


def execution_section(run: Run) -> ExecutionSection | None:
    """The section of a run; None if it has nothing to do with alignment samples."""
    has_alignment_samples = any(key.startswith(_METRICS) for row in run.train for key in row)
    if not has_alignment_samples and not run.task_evaluations:
        return None
    train = averaged(run.train)
    in_training = [_answers(train), _share(run, train), _shortage(train), _kinds(train), _lengths(train)]
    figures = [*(in_training if has_alignment_samples else ()), heldout_figure(run)]
    last = max((int(rows[-1]["step"]) for rows in _heldout(run).values() if len(rows) > 1), default=0)
    return ExecutionSection(
        figures=figures,
        rows=[_heldout_row(name, rows) for name, rows in _heldout(run).items() if rows],
        after=f"step {last}" if last else "",
        has_alignment_samples=has_alignment_samples,
        cases=sample_cases(run.rollout_files) if has_alignment_samples else (),
    )


def known_tasks(names: Sequence[str]) -> list[str]:
    """`names` in the order of the page."""
    return sorted(names, key=lambda name: (TASKS.index(name) if name in TASKS else len(TASKS), name))


def heldout_figure(run: Run) -> Figure:
    """pass@1 of held-out problems and of each task, with intervals."""
    heldout = _heldout(run)
    lines = [
        heldout_line(name.replace("_", " "), colour, rows)
        for colour, (name, rows) in zip(_cycled(len(heldout)), heldout.items(), strict=True)
    ]
    steps = step_axis(run.train, *heldout.values())
    note = "Items of tasks come from held-out problems, which no alignment sample is made from. Bands are intervals."
    return line_figure("Held out", note, lines, steps, Axis("pass@1", is_share=True))


def share_line(run: Run, label: str, colour: str) -> Line:
    """The share of alignment samples among the prompts of each step."""
    points = series(averaged(run.train), "alignment/share")
    return Line(label, colour, points, has_marks=len(points) <= MARKED_POINTS)


def wanted_share(run: Run) -> float | None:
    """The share of alignment samples that the configuration asks for."""
    settings: Any = run.config.get("alignment")
    return number(cast("Mapping[str, Any]", settings), "share") if isinstance(settings, dict) else None


def _heldout(run: Run) -> Mapping[str, Sequence[Row]]:
    tasks = run.task_evaluations
    return {PROBLEMS: run.evaluations} | {name: tasks[name] for name in known_tasks(list(tasks))}


def _heldout_row(name: str, rows: Sequence[Row]) -> HeldoutRow:
    first, last = rows[0], rows[-1] if len(rows) > 1 else None
    items = number(last or first, "problems")
    return HeldoutRow(
        name,
        None if items is None else int(items),
        *(interval_of(row, "pass@1") for row in (first, last)),
        *(interval_of(row, "greedy") for row in (first, last)),
    )


def _answers(train: Sequence[Row]) -> Figure:
    curves = [
        Curve("alignment/reward", "reward", "accent"),
        Curve("alignment/exact_share", "exact", "greedy"),
        Curve("alignment/bad_format_share", "malformed", "bad_format"),
    ]
    note = "The reward is the share of values that is right; exact: all of them; malformed: no JSON object at the end."
    return curves_figure(train, "Answers to alignment samples", note, Axis("share of answers", is_share=True), curves)


def _share(run: Run, train: Sequence[Row]) -> Figure:
    lines = [share_line(run, "alignment samples", "accent")]
    wanted = wanted_share(run)
    if wanted is not None and lines[0].points:
        ends = sorted({lines[0].points[0][0], lines[0].points[-1][0]})
        lines.append(Line("wanted", "before", [(step, wanted) for step in ends], style="dotted"))
    axis = Axis("share of prompts", is_share=True)
    return line_figure("Alignment samples in the batch", "The rest asks for programs.", lines, step_axis(train), axis)


def _shortage(train: Sequence[Row]) -> Figure:
    curves = [Curve("alignment/short", "short", "accent", is_smoothed=False)]
    note = "Alignment samples that a step wanted and that were not there; programs were asked in their place."
    return curves_figure(train, "Shortage", note, Axis("alignment_samples"), curves)


def _kinds(train: Sequence[Row]) -> Figure:
    names = sorted({key.removeprefix(_KIND) for row in train for key in row if key.startswith(_KIND)})
    curves = [Curve(f"{_KIND}{name}", name, colour) for name, colour in zip(names, _cycled(len(names)), strict=True)]
    axis = Axis("share of values that is right", is_share=True)
    return curves_figure(train, "By kind of variable", "The type of the true value.", axis, curves)


def _lengths(train: Sequence[Row]) -> Figure:
    names = {key.removeprefix(_LENGTH) for row in train for key in row if key.startswith(_LENGTH)}
    ordered = sorted(names, key=_length)
    colours = _cycled(len(ordered))
    curves = [
        Curve(f"{_LENGTH}{name}", name.replace("-", " "), colour) for name, colour in zip(ordered, colours, strict=True)
    ]
    note = "Characters of the program; each stands with those of about its length."
    return curves_figure(train, "By length of program", note, Axis("mean reward"), curves)


def _length(name: str) -> tuple[bool, float, str]:
    """Of `under-100` and its like, to sort by."""
    digits = name.rpartition("-")[2]
    return name.startswith("from-"), float(digits) if digits.isascii() and digits.isdecimal() else 0.0, name


def _cycled(count: int) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(count)]


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
    """The first cases of each reason in the latest of `files`, ordered by step; no alignment sample twice."""
    chosen: list[SampledCase] = []
    counts: Counter[str] = Counter()
    for path in list(reversed(files))[:SCANNED_FILES]:
        seen: set[str] = set()
        for rollout in _recorded_answers(path):
            reason = rollout.reason or ""
            if counts[reason] >= WANTED.get(reason, 0) or rollout.group in seen:
                continue
            if (case := _case(step_of(path), rollout)) is not None:
                chosen.append(case)
                counts[reason] += 1
                seen.add(rollout.group)
    order = list(WANTED)
    return sorted(chosen, key=lambda case: order.index(case.reason))


def _recorded_answers(path: Path) -> Iterator[RecordedRollout]:
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
