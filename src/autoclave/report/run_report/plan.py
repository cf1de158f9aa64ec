"""Plan of the schedule of a run, beside its measured times."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from autoclave.core.errors import DataError
from autoclave.planning.plan_file import SchedulePlan, read_plan
from autoclave.report import text
from autoclave.runs.reader import Run, number


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
