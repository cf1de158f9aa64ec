"""Put the page together and write it: one file that loads nothing (`pages/html.py`), of bounded size.

Every rollout file that is looked at is read twice: for figures over all of it, and for the rollouts that are chosen.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from autoclave.core.errors import InputError
from autoclave.core.files import write_atomically
from autoclave.core.json import nearest, shown
from autoclave.report.html import render_page
from autoclave.report.view.shown import MISMATCH_LEVELS, Detokenizer, ShownGroup, ShownRollout, read_chosen
from autoclave.report.view.survey import (
    Figures,
    Request,
    Survey,
    choose_pairs,
    choose_varied,
    ranges,
    shared_groups,
    sources_of,
    survey,
)
from autoclave.runs.reader import Run
from autoclave.runs.rollouts import SHOWN_TESTS, step_of

VIEW_NAME = "view.html"
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Written:
    """The page, and how many of the rollouts that fit the request are on it."""

    path: Path
    num_shown: int
    num_found: int


@dataclass(frozen=True, slots=True)
class Filter:
    """A choice on the page. Values are those of `data-<name>` of groups or rollouts."""

    name: str
    label: str
    values: Sequence[str]


def write_view(request: Request, out: Path | None = None) -> Written:
    """Write the page to `out`; by default it is `view.html` in the folder of the run.

    Raises InputError: not a run folder, no rollouts recorded, a step or a problem that is not, or a damaged file.
    """
    surveys = [survey(source, request.problems) for source in sources_of(request)]
    _check_problems(request.problems, surveys)
    if not request.compares:
        surveys = [found for found in surveys if found.groups]
    groups = [] if request.compares else _groups(surveys, request.limit)
    pairs = _pairs(surveys, request.limit) if request.compares else []
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rollouts += [rollout for group in pairs for pair in group.pairs for rollout in pair.both]
    num_found = sum(found.figures.rollouts for found in surveys)
    html = render_page(
        _HERE / "view.html.j2",
        _HERE / "view.js",
        runs=_runs(surveys),
        compares=request.compares,
        surveys=surveys,
        rows=step_rows(surveys),
        has_answers=any(rollout.reason for rollout in rollouts),
        unpaired=_unpaired(surveys) if request.compares else (0, 0),
        groups=groups,
        pairs=pairs,
        num_shown=len(rollouts),
        num_found=num_found,
        filters=_filters(groups, pairs, rollouts),
        has_tokens=any(rollout.strip for rollout in rollouts),
        mismatch_levels=MISMATCH_LEVELS,
        shown_tests=SHOWN_TESTS,
    )
    path = out or request.run / VIEW_NAME
    write_atomically(path, html)
    return Written(path, len(rollouts), num_found)


def _check_problems(problems: Sequence[str], surveys: Sequence[Survey]) -> None:
    found = {outline.item for survey in surveys for outline in survey.groups.values()}
    for problem in problems:
        if problem not in found:
            others = list(dict.fromkeys(item for survey in surveys for item in survey.other_problems))
            steps = ranges(sorted({survey.source.step for survey in surveys}))
            fix = nearest(problem, others[:SHOWN_NAMES]) if len(others) <= SHOWN_NAMES else _nearest(problem, others)
            raise InputError(f"--problem {shown(problem)}: no rollout of it in step {steps}; {fix}")


SHOWN_NAMES = 5
"""Most problems that a message lists."""


def _nearest(problem: str, others: Sequence[str]) -> str:
    """Names like it, or a few."""
    fix = nearest(problem, others)
    return fix if fix.startswith("did") else f"there are {', '.join(others[:SHOWN_NAMES])} and others"


def _groups(surveys: Sequence[Survey], limit: int) -> list[ShownGroup]:
    chosen = choose_varied(surveys, limit)
    groups: list[ShownGroup] = []
    for number, found in enumerate(surveys):
        of_source = [group for group in chosen if group.source == number]
        shown = read_chosen(found.source, of_source, Detokenizer.of_run(found.source.run.folder))
        groups += [shown[group.group] for group in of_source]
    return groups


def _pairs(surveys: Sequence[Survey], limit: int) -> "list[ComparedGroup]":
    chosen = choose_pairs(*surveys, limit=limit)
    before, after = (
        read_chosen(found.source, [pair[number] for pair in chosen], Detokenizer.of_run(found.source.run.folder))
        for number, found in enumerate(surveys)
    )
    return [compared(before[old.group], after[new.group]) for old, new in chosen]


def _unpaired(surveys: Sequence[Survey]) -> tuple[int, int]:
    """Problems that only the first, and only the second of the two sources has."""
    first, second = (survey.groups for survey in surveys)
    shared = {first[name].item for name, _ in shared_groups(first, second)}
    items = [{outline.item for outline in groups.values()} - shared for groups in (first, second)]
    return len(items[0]), len(items[1])


def _runs(surveys: Sequence[Survey]) -> list[tuple[Run, str]]:
    """Each run with its recorded steps in words, the one that the page is about first."""
    runs = {survey.source.run.folder: survey.source.run for survey in reversed(surveys)}
    return [(run, ranges([step_of(path) for path in run.rollout_files])) for run in runs.values()]


def _filters(
    groups: Sequence[ShownGroup], pairs: "Sequence[ComparedGroup]", rollouts: Sequence[ShownRollout]
) -> list[Filter]:
    """Values to choose from; empty where there is a single one."""
    found = [
        Filter("step", "step", _distinct(group.source.label for group in groups)),
        Filter("problem", "problem", _distinct([g.item for g in groups] + [g.after.item for g in pairs])),
        Filter("task", "task", sorted({g.task for g in groups} | {g.after.task for g in pairs})),
        Filter("status", "status", sorted({rollout.status for rollout in rollouts if not rollout.reason})),
        Filter("reason", "reason", sorted({rollout.reason for rollout in rollouts if rollout.reason})),
        Filter("mask", "mask reason", sorted({rollout.mask_reason or "none" for rollout in rollouts})),
        Filter("advantage", "advantage", sorted({rollout.advantage_sign for rollout in rollouts})),
        Filter("finish", "ended by", sorted({rollout.finish_reason or "none" for rollout in rollouts})),
    ]
    are_mixed = len({rollout.reason is None for rollout in rollouts}) > 1
    return [choice for choice in found if len(choice.values) > (0 if are_mixed and choice.name in _BY_KIND else 1)]


_BY_KIND = ("status", "reason")
"""Filters of rollouts with a verdict, and of those without one: a single value still leaves the other kind out."""


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row. `side` is the number of the side that it is of, in a comparison."""

    side: int
    label: str
    task: str
    """Empty where no step has several."""
    figures: Figures


def step_rows(surveys: Sequence[Survey]) -> list[StepRow]:
    is_split = any(len(survey.by_task) > 1 for survey in surveys)
    return [
        StepRow(side, survey.source.label, task if is_split else "", figures)
        for side, survey in enumerate(surveys)
        for task, figures in (survey.by_task or {"": survey.figures}).items()
    ]


COMPARED_LINES = 199
"""Most lines of a response that are compared: the time for it grows with their product, and from 200 lines on difflib
leaves out frequent ones."""
CONTEXT_LINES = 3


_KINDS = {" ": "kept", "-": "removed", "+": "added", "@": "place"}


@dataclass(frozen=True, slots=True)
class Pair:
    """The same sample of both; one may be missing. `difference` is None where there is nothing to compare."""

    before: ShownRollout | None
    after: ShownRollout | None
    difference: Sequence[tuple[str, str]] | None

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


def difference(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Kind (`kept`, `removed`, `added`, or the `place` in both) and text of each line of a unified diff."""
    old, new = before.split("\n"), after.split("\n")
    compared = unified_diff(old[:COMPARED_LINES], new[:COMPARED_LINES], n=CONTEXT_LINES, lineterm="")
    for line in islice(compared, 2, None):  # after the names of the files
        yield _KINDS[line[0]], line if line[0] == "@" else line[1:]
    if max(len(old), len(new)) > COMPARED_LINES:
        yield "place", f"lines after the first {COMPARED_LINES} are not compared"
