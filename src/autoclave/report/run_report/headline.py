"""Result of a run in a few numbers: held-out results before and after, with an honest sentence, and its facts.

Numbers come from the first and the latest evaluation; where `summary.json` has one, that one counts.
"""

import re
from dataclasses import dataclass
from typing import Any

from autoclave.report import text
from autoclave.report.charts import Interval
from autoclave.report.run_report.figures import interval_of
from autoclave.runs.reader import Row, Run, number


@dataclass(frozen=True, slots=True)
class Measure:
    """One held-out result, before RL and at the latest evaluation."""

    label: str
    before: Interval | None
    after: Interval | None

    @property
    def change(self) -> float | None:
        return self.after.value - self.before.value if self.before and self.after else None


@dataclass(frozen=True, slots=True)
class Headline:
    """The top of the page. Lists of sentences and facts are plain text."""

    measures: tuple[Measure, ...]
    after: str
    """Label of the second number of each measure: "after RL", or which step it stands at."""
    sentences: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def headline(run: Run) -> Headline:
    before, after = _evaluation(run, "before"), _evaluation(run, "after")
    keys = ["pass@1", "greedy", *_pass_at_k(before | after)]
    measures = [Measure(key, interval_of(before, key), interval_of(after, key)) for key in keys]
    measures = [measure for measure in measures if measure.before or measure.after]
    latest = number(after, "step")
    return Headline(
        measures=tuple(measures),
        after="after RL" if run.summary or latest is None else f"at step {latest:.0f}",
        sentences=tuple(_sentences(run, measures, before, after)),
        facts=tuple((label, value) for label, value in _facts(run, before) if value),
    )


def _evaluation(run: Run, when: str) -> dict[str, Any]:
    """The first (`before`) or the latest (`after`) evaluation, with what the summary says of it laid over it."""
    rows = run.evaluations if when == "before" else run.evaluations[1:]
    row: dict[str, Any] = dict(rows[0 if when == "before" else -1]) if rows else {}
    for key, value in (run.summary or {}).items():
        if value is None:
            continue
        if match := re.fullmatch(rf"heldout_(pass(\d+)|greedy)_{when}", key):
            row["greedy" if match[1] == "greedy" else f"pass@{match[2]}"] = value
        elif key == f"heldout_pass1_interval_{when}":
            row["pass@1/low"], row["pass@1/high"] = value
    return row


def _pass_at_k(row: Row) -> list[str]:
    """The pass@k of most samples, if there is one beside pass@1."""
    found = [int(match[1]) for match in map(re.compile(r"pass@(\d+)").fullmatch, row) if match]
    return [f"pass@{max(found)}"] if found and max(found) > 1 else []


def _sentences(run: Run, measures: list[Measure], before: Row, after: Row) -> list[str]:
    said: list[str] = []
    summary = run.summary or {}
    if not measures:
        return ["No evaluation on held-out problems is recorded yet."]
    if description := summary.get("heldout_description"):
        said.append(f"Held out: {str(description).removesuffix('.')}.")
    first = measures[0]
    if first.label == "pass@1" and first.before and first.after:
        said.append(_comparison(first.before, first.after))
    elif not after:
        said.append("Only the evaluation before RL is recorded so far.")
    of_before, of_after = number(before, "problems"), number(after, "problems")
    if of_before and of_after and of_after < of_before:
        said.append(f"The latest evaluation used {of_after:.0f} of the {of_before:.0f} held-out problems.")
    return said


def _comparison(before: Interval, after: Interval) -> str:
    if not before.bounds or not after.bounds:
        return "No intervals are recorded, so how much of the change is chance cannot be seen."
    if after.bounds[0] > before.bounds[1]:
        return "The two intervals of pass@1 do not overlap: held-out problems are solved more often than before RL."
    if after.bounds[1] < before.bounds[0]:
        return "The two intervals of pass@1 do not overlap: held-out problems are solved less often than before RL."
    return "The two intervals of pass@1 overlap: this run alone does not show a change."


def _facts(run: Run, before: Row) -> list[tuple[str, str]]:
    summary, config = run.summary or {}, run.config
    problems = number(summary, "heldout_problems") or number(before, "problems")
    samples, seconds = number(before, "samples"), number(summary, "seconds_total")
    wanted = summary.get("steps") or config.get("steps") or "?"
    algorithm, schedule = config.get("algorithm"), config.get("schedule")
    return [
        ("Held-out problems", f"{problems:,.0f}" if problems else ""),
        ("Samples of each", f"{samples:.0f}" if samples else ""),
        ("Steps", str(wanted) if run.summary else f"{run.steps_done} of {wanted}"),
        ("Time", text.duration(seconds) if seconds else ""),
        ("Seed", str(summary.get("seed", config.get("seed", "")))),
        ("Isolation", str(summary.get("sandbox_level") or "")),
        ("Algorithm", str(algorithm.get("name", "")) if isinstance(algorithm, dict) else ""),
        ("Schedule", str(schedule.get("name", "")) if isinstance(schedule, dict) else ""),
    ]
