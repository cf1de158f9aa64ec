"""Several runs on one page: held-out curves, the measured mix, final figures, and the settings in which they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from autoclave.core.errors import InputError
from autoclave.core.files import write_atomically
from autoclave.report.charts import PALETTE, Axis, Figure, Interval, Line, line_figure
from autoclave.report.html import render_page
from autoclave.report.run_report.execution import known_tasks, share_line
from autoclave.report.run_report.figures import (
    averaged,
    heldout_line,
    interval_of,
    running_mean,
    series,
    smoothing_window,
    step_axis,
)
from autoclave.report.run_report.tables import config_blocks
from autoclave.report.text import shortened
from autoclave.runs.reader import Row, Run, number, read_run

COMPARISON_NAME = "comparison.html"
SHOWN_SETTINGS = 200
"""Most settings that are listed."""
SHOWN_SETTING = 400
"""Most characters of the value of one."""

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run with its colour and a name that no other has."""

    run: Run
    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class FinalRow:
    """Result of one run. Results are those of its latest evaluations, None where there is none."""

    label: str
    colour: str
    state: str
    problems: int | None
    before: Interval | None
    """pass@1 of held-out problems before RL."""
    results: Sequence[Interval | None]
    """pass@1 and greedy of held-out problems, then pass@1 of each task."""
    share: float | None
    """Of alignment samples among the prompts, mean over the steps."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in which runs differ; None where a run has no such setting."""

    key: str
    values: Sequence[str | None]


def write_comparison(folders: Sequence[Path], out: Path | None = None) -> Path:
    """The path of a page about the runs in `folders`: `out`, or `comparison.html` in the first of them.

    Raises InputError: a folder is missing, is not a run folder or is given twice, or there are more than colours.
    """
    path = out or folders[0] / COMPARISON_NAME
    write_atomically(path, render_comparison(_runs(folders)))
    return path


def render_comparison(runs: Sequence[ComparedRun]) -> str:
    tasks = known_tasks(list({task for each in runs for task in each.run.task_evaluations}))
    settings = differing_settings([each.run for each in runs])
    return render_page(
        _HERE / "comparison.html.j2",
        _HERE / "report.js",
        runs=runs,
        heldout=[_heldout_figure(runs, None), *(_heldout_figure(runs, task) for task in tasks)],
        training=[
            _training_figure(runs, "Training reward", "On the problems being trained on.", "reward/mean"),
            _training_figure(
                runs, "Reward of alignment samples", "The share of values that is right.", "alignment/reward"
            ),
            _share_figure(runs),
        ],
        tasks=tasks,
        rows=[_final_row(each, tasks) for each in runs],
        settings=settings[:SHOWN_SETTINGS],
        num_more_settings=max(0, len(settings) - SHOWN_SETTINGS),
    )


def differing_settings(runs: Sequence[Run]) -> list[Setting]:
    flat = [_flat_settings(run) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    found = [Setting(key, [settings.get(key) for settings in flat]) for key in keys]
    return [setting for setting in found if len(set(setting.values)) > 1]


def _runs(folders: Sequence[Path]) -> list[ComparedRun]:
    if len(folders) > len(PALETTE):
        raise InputError(f"--against: {len(folders)} runs are too many for one chart; give at most {len(PALETTE) - 1}")
    resolved = [folder.resolve() for folder in folders]
    for index, folder in enumerate(folders):
        if resolved[index] in resolved[:index]:
            raise InputError(f"--against {folder}: the same run twice; give another")
    names = [folder.name for folder in resolved]
    is_unique = len(set(names)) == len(names)
    labels = names if is_unique else [str(folder) for folder in folders]
    return [
        ComparedRun(read_run(folder), shortened(label, 200), colour)
        for folder, label, colour in zip(folders, labels, PALETTE, strict=False)
    ]


def _flat_settings(run: Run) -> Mapping[str, str]:
    return {
        f"{block}.{key}" if block else key: shortened(value, SHOWN_SETTING)
        for block, pairs in config_blocks(run.config)
        for key, value in pairs
    }


def _evaluations(run: Run, task: str | None) -> Sequence[Row]:
    return run.evaluations if task is None else run.task_evaluations.get(task, ())


def _heldout_figure(runs: Sequence[ComparedRun], task: str | None) -> Figure:
    lines = [heldout_line(each.label, each.colour, _evaluations(each.run, task)) for each in runs]
    title = "Held-out problems" if task is None else task.replace("_", " ").capitalize()
    note = "pass@1; bands are its intervals." + (" Items from held-out problems." if task else "")
    return _figure(title, note, Axis("pass@1", is_share=True), lines, runs)


def _training_figure(runs: Sequence[ComparedRun], title: str, note: str, key: str) -> Figure:
    lines: list[Line] = []
    for each in runs:
        points = series(averaged(each.run.train), key)
        window = smoothing_window(len(points))
        lines.append(Line(each.label, each.colour, running_mean(points, window)))
    return _figure(title, f"{note} Running means.", Axis("mean reward"), lines, runs)


def _share_figure(runs: Sequence[ComparedRun]) -> Figure:
    lines = [share_line(each.run, each.label, each.colour) for each in runs]
    return _figure(
        "Alignment samples in the batch", "As measured.", Axis("share of prompts", is_share=True), lines, runs
    )


def _figure(title: str, note: str, axis: Axis, lines: Sequence[Line], runs: Sequence[ComparedRun]) -> Figure:
    steps = step_axis(*(each.run.train for each in runs), *(each.run.evaluations for each in runs))
    return line_figure(title, note, lines, steps, axis)


def _final_row(each: ComparedRun, tasks: Sequence[str]) -> FinalRow:
    run, rows = each.run, each.run.evaluations
    last = rows[-1] if rows else None
    of_tasks = [_evaluations(run, task) for task in tasks]
    problems = number(last, "problems")
    shares = [share for row in run.train if (share := number(row, "alignment/share")) is not None]
    return FinalRow(
        label=each.label,
        colour=each.colour,
        state=_state(run, last),
        problems=None if problems is None else int(problems),
        before=interval_of(rows[0], "pass@1") if len(rows) > 1 else None,
        results=[
            interval_of(last, "pass@1"),
            interval_of(last, "greedy"),
            *(interval_of(found[-1] if found else None, "pass@1") for found in of_tasks),
        ],
        share=fmean(shares) if shares else None,
    )


def _state(run: Run, last: Row | None) -> str:
    """Progress of `run`, and the step of its `last` evaluation, if that is another one."""
    state = f"{'finished' if run.summary else 'still going, or cut off'}, step {run.steps_done}"
    evaluated = run.steps_done if last is None else int(last["step"])
    return state if evaluated == run.steps_done else f"{state}; evaluated at step {evaluated}"
