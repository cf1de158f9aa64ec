"""Choice of the rollouts on the page among those that fit a request: whole groups, as many as the limit allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from autoclave.report.view.survey import Outline, Survey
from autoclave.runs.rollouts import varied


@dataclass(frozen=True, slots=True)
class Chosen:
    """A group of source number `source`; of its rollouts the first `rollouts` in the file."""

    source: int
    group: str
    rollouts: int


def choose_varied(surveys: Sequence[Survey], limit: int) -> list[Chosen]:
    """Groups of every source and task in turns, up to `limit` rollouts; in order of sources.

    Those of one source and task are chosen for variety.
    """
    lines: list[list[tuple[int, str]]] = []
    for index, survey in enumerate(surveys):
        for task in dict.fromkeys(outline.task for outline in survey.groups.values()):
            accepted = {name: found.accepted for name, found in survey.groups.items() if found.task == task}
            lines.append([(index, name) for name in varied(accepted)])
    turns = [place for turn in zip_longest(*lines) for place in turn if place is not None]
    chosen: list[Chosen] = []
    left = limit
    for index, name in turns:
        size = len(surveys[index].groups[name].accepted)
        if size > left and chosen:
            break
        chosen.append(Chosen(index, name, min(size, left)))
        left -= chosen[-1].rollouts
    return sorted(chosen, key=lambda group: group.source)


def choose_pairs(before: Survey, after: Survey, limit: int) -> list[tuple[Chosen, Chosen]]:
    """Problems that both have, up to `limit` rollouts; first where the share of accepted rollouts changed most."""
    pairs = sorted(shared_groups(before.groups, after.groups), key=lambda pair: -_change(before, after, pair))
    chosen: list[tuple[Chosen, Chosen]] = []
    left = limit
    for names in pairs:
        sizes = [len(survey.groups[name].accepted) for survey, name in zip((before, after), names, strict=True)]
        if sum(sizes) > left and chosen:
            break
        each = max(1, left // 2)
        old, new = (Chosen(index, names[index], min(sizes[index], each)) for index in (0, 1))
        chosen.append((old, new))
        left -= old.rollouts + new.rollouts
    return chosen


def shared_groups(before: Mapping[str, Outline], after: Mapping[str, Outline]) -> list[tuple[str, str]]:
    """The names of the groups of each problem that both have, in the order of `after`; of several the first."""
    of_item: dict[str, str] = {}
    for name, outline in before.items():
        of_item.setdefault(outline.item, name)
    pairs: dict[str, tuple[str, str]] = {}
    for name, outline in after.items():
        if outline.item in of_item:
            pairs.setdefault(outline.item, (of_item[outline.item], name))
    return list(pairs.values())


def _change(before: Survey, after: Survey, names: tuple[str, str]) -> float:
    return abs(after.groups[names[1]].accepted_share - before.groups[names[0]].accepted_share)
