"""Put the page together and write it: `report.html`, one file that loads nothing (`pages/html.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autoclave.core.files import write_atomically
from autoclave.report.html import render_page
from autoclave.report.run_report import tables
from autoclave.report.run_report.execution import execution_section
from autoclave.report.run_report.figures import DRAWN_POINTS, curve_sections
from autoclave.report.run_report.headline import Headline, headline
from autoclave.report.run_report.plan import plan_section
from autoclave.report.run_report.samples import SHOWN_CHARACTERS, SampledStep, sample_step
from autoclave.report.run_report.timeline import timeline_section
from autoclave.runs.reader import Run, read_run
from autoclave.runs.rollouts import SHOWN_TESTS

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
    """The whole page."""
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


def sampled_steps(run: Run) -> list[SampledStep]:
    """The same number of groups of the first and of the last rollout file; those of the only one if there is one."""
    files = [run.rollout_files[index] for index in sorted({0, len(run.rollout_files) - 1}) if run.rollout_files]
    steps = [step for file in files if (step := sample_step(file, SHOWN_GROUPS)).groups]
    fewest = min((len(step.groups) for step in steps), default=0)
    return [replace(step, groups=step.groups[:fewest]) for step in steps]


def _with_level(headline: Headline, steps: list[SampledStep]) -> Headline:
    """An unfinished run has no summary to name the isolation, but its verdicts do."""
    if any(label == "Isolation" for label, _ in headline.facts):
        return headline
    rollouts = [rollout for step in steps for group in step.groups for rollout in group.rollouts]
    levels = sorted({rollout.verdict.level for rollout in rollouts if rollout.verdict and rollout.verdict.level})
    return replace(headline, facts=(*headline.facts, ("Isolation", ", ".join(levels)))) if levels else headline
