"""Put the page together and write it: `report.html`, one file that loads nothing (`pages/html.py`)."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean

from autoclave.core.errors import DataError
from autoclave.core.files import write_atomically
from autoclave.planning.schedule_plan import SchedulePlan, read_plan
from autoclave.report import text
from autoclave.report.html import render_page
from autoclave.report.run_report import tables
from autoclave.report.run_report.execution import execution_section
from autoclave.report.run_report.figures import DRAWN_POINTS, curve_sections
from autoclave.report.run_report.headline import Headline, headline
from autoclave.report.run_report.timeline import timeline_section
from autoclave.runs.reader import Run, number, read_run
from autoclave.runs.rollouts import SHOWN_TESTS, RecordedRollout, read_rollouts, step_of, varied

REPORT_NAME = "report.html"
SHOWN_GROUPS = 4
"""Groups of rollouts shown of the first and of the last rollout file."""

_HERE = Path(__file__).parent


def write_report(run_folder: Path, out: Path | None = None) -> Path:
    """The path of the report, written from what is there: also while the run is going.

    That is `out`, or `report.html` in `run_folder`.

    Raises:
        InputError: `run_folder` is missing or is not a run folder, or a file in it that is written whole is damaged.
    """
    path = out or run_folder / REPORT_NAME
    write_atomically(path, render(read_run(run_folder)))
    return path


def render(run: Run) -> str:
    steps = sampled_steps(run)
    family_rows, families_after = tables.family_rows(run)
    return render_page(
        _HERE / "report.html.j2",
        _HERE / "report.js",
        run=run,
        headline=_with_level(headline(run), steps),
        sections=curve_sections(run),
        missing=missing_parts(run),
        num_averaged=-(-len(run.train) // DRAWN_POINTS),
        time_figures=[tables.stage_figure(run), tables.throughput_figure(run)],
        stage_rows=tables.stage_rows(run),
        whole_run_rows=tables.whole_run_rows(run),
        timeline=timeline_section(run),
        plan=plan_section(run),
        execution=execution_section(run),
        family_rows=family_rows,
        families_after=families_after,
        steps=steps,
        config_blocks=tables.config_blocks(run.config),
        environment=tables.environment_rows(run),
        shown_characters=SHOWN_CHARACTERS,
        shown_tests=SHOWN_TESTS,
    )


def missing_parts(run: Run) -> list[str]:
    """Names of missing metrics, in the words of the page."""
    return [
        name
        for name, rows in (
            ("training steps", run.train),
            ("evaluations on held-out problems", run.evaluations),
            ("the warm start (switched off, or taken from the cache)", run.sft),
        )
        if not rows
    ]


def sampled_steps(run: Run) -> "list[SampledStep]":
    """The same number of groups of the first and of the last rollout file; those of the only one if there is one."""
    files = [run.rollout_files[index] for index in sorted({0, len(run.rollout_files) - 1}) if run.rollout_files]
    steps = [step for file in files if (step := sample_step(file, SHOWN_GROUPS)).groups]
    fewest = min((len(step.groups) for step in steps), default=0)
    return [replace(step, groups=step.groups[:fewest]) for step in steps]


def _with_level(headline: Headline, steps: "list[SampledStep]") -> Headline:
    """An unfinished run has no summary to name the isolation, but its verdicts do."""
    if any(label == "Isolation" for label, _ in headline.facts):
        return headline
    rollouts = [rollout for step in steps for group in step.groups for rollout in group.rollouts]
    levels = sorted({rollout.verdict.level for rollout in rollouts if rollout.verdict and rollout.verdict.level})
    return replace(headline, facts=(*headline.facts, ("Isolation", ", ".join(levels)))) if levels else headline


@dataclass(frozen=True, slots=True)
class PlanSection:
    """Predicted and measured seconds of a step, and sentences. Without a sentence nothing was planned."""

    rows: tuple[tuple[str, str], ...] = ()
    sentence: str = ""


def plan_section(run: Run) -> PlanSection:
    """The section of a run; a plan that is damaged, or of other work, is spoken of."""
    try:
        plan = read_plan(run.folder)
    except DataError as error:
        return PlanSection(sentence=f"The plan cannot be read: {error}.")
    return compared(run, plan) if plan else PlanSection()


def compared(run: Run, plan: SchedulePlan) -> PlanSection:
    """Planned seconds for the settings of the run, and the mean over its steps but the first."""
    expected = plan.of(run.config)
    if expected is None:
        return PlanSection(sentence="The plan is of other settings than this run has.")
    recommended = f"{plan.chosen.name}, {text.duration(plan.chosen.seconds)} a step"
    rows = [("Predicted seconds of a step", f"{expected.seconds:.3g}"), ("Recommended", recommended)]
    measured = measured_step_s(run)
    if measured is None:
        return PlanSection(tuple(rows), f"Planned: {text.duration(expected.seconds)} a step.")
    error = expected.seconds / measured - 1
    rows[1:1] = [("Measured", f"{measured:.3g}"), ("Error", f"{text.points(error)} %")]
    sentence = (
        f"A step was planned to take {text.duration(expected.seconds)} and took {text.duration(measured)}: "
        f"the plan was {text.percent(abs(error))} too {'high' if error > 0 else 'low'}."
    )
    return PlanSection(tuple(rows), sentence)


def measured_step_s(run: Run) -> float | None:
    """The mean seconds of a step; libraries warm up in the first one, which counts where it is the only one."""
    found = [seconds for row in run.train if (seconds := number(row, "time/step_s")) is not None]
    return fmean(found[1:] or found) if found else None


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
