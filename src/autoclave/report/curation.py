"""The page of a curation: what each stage kept, what the set is like, and some of what was dropped for each reason."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoclave.core.files import write_atomically
from autoclave.problems.candidate import ProblemCandidate
from autoclave.problems.curation.pipeline import StageResult
from autoclave.problems.curation.stage import Dropped
from autoclave.report.charts import Axis, Figure, column_chart
from autoclave.report.html import render_page

REPORT = "report.html"
SAMPLES = 3
"""Dropped problems that are shown of each reason."""
_COLUMNS = 24
_ROWS = 30
_HERE = Path(__file__).parent
_WORDS = (("difficulty", "Difficulty"), ("released", "Year of release"))
_FACTS = (
    ("tests", "Tests per problem", "different tests"),
    ("input_characters", "Longest input", "characters"),
    ("prompt_tokens", "Length of the prompt", "tokens"),
    ("killed_share", "Strength of tests", "share of mutants that fail"),
    ("solutions", "Official solutions", "that pass"),
    ("pass_rate", "Pass rate", "of a model"),
)


@dataclass(frozen=True, slots=True)
class FunnelRow:
    """A stage: what is left, as a share of what was read, and what it dropped by reason."""

    name: str
    kept: int
    share: float
    reasons: Sequence[tuple[str, int]]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReasonSamples:
    """Some of what a stage dropped for one reason."""

    stage: str
    reason: str
    count: int
    samples: Sequence[Dropped]


def write_report(path: Path, manifest: Mapping[str, Any], results: Sequence[StageResult]) -> None:
    facts, words = _collected(results[-1].kept)
    write_atomically(
        path,
        render_page(
            _HERE / "curation.html.j2",
            None,
            manifest=manifest,
            funnel=_funnel(results),
            sources=_sources(manifest, results),
            figures=[histogram(title, label, facts[name]) for name, title, label in _FACTS if name in facts],
            words=[(title, bars(words[name])) for name, title in _WORDS if words[name]],
            reasons=_samples(results),
        ),
    )


def _funnel(results: Sequence[StageResult]) -> list[FunnelRow]:
    read = sum(results[0].num_kept.values()) + results[0].reasons.total()
    return [
        FunnelRow(
            result.name,
            kept := sum(result.num_kept.values()),
            kept / max(read, 1),
            result.reasons.most_common(),
            result.notes,
        )
        for result in results
    ]


def _sources(manifest: Mapping[str, Any], results: Sequence[StageResult]) -> list[tuple[str, list[int], str]]:
    """By source, how many are left after each stage, and its licence."""
    return [
        (source["name"], [result.num_kept.get(source["name"], 0) for result in results], source["licence"])
        for source in manifest["sources"]
    ]


def _collected(candidates: Iterable[ProblemCandidate]) -> tuple[dict[str, list[float]], dict[str, Counter[str]]]:
    facts: dict[str, list[float]] = {}
    words: dict[str, Counter[str]] = {"difficulty": Counter(), "released": Counter()}
    for candidate in candidates:
        for name, value in candidate.facts.items():
            facts.setdefault(name, []).append(value)
        if candidate.problem.difficulty:
            words["difficulty"][candidate.problem.difficulty] += 1
        if candidate.problem.released:
            words["released"][str(candidate.problem.released.year)] += 1
    return facts, words


def histogram(title: str, label: str, values: Sequence[float]) -> Figure:
    """Columns of equal width up to the 99th percentile; what is beyond stands in the last."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)))]
    is_whole = all(value == int(value) for value in ordered)
    width = max((high - low) / _COLUMNS, 1.0 if is_whole else 1e-9)
    width = math.ceil(width) if is_whole else width
    counts = Counter(min(int((value - low) / width), int((high - low) / width)) for value in ordered)
    columns = [
        (low + (place + (0 if is_whole and width == 1 else 0.5)) * width, [counts[place]])
        for place in range(max(counts) + 1)
    ]
    note = f"Median {ordered[len(ordered) // 2]:,.4g}, greatest {ordered[-1]:,.4g}."
    return Figure(title, note, column_chart([("problems", "accent")], columns, Axis(label), Axis("problems", low=0)))


def bars(counts: Counter[str]) -> list[tuple[str, int, float]]:
    """Words with their counts, and these as shares of the greatest. Years in their order, others by count."""
    order = sorted(counts) if all(word.isdecimal() for word in counts) else [word for word, _ in counts.most_common()]
    greatest = max(counts.values())
    return [(word, counts[word], counts[word] / greatest) for word in order[:_ROWS]]


def _samples(results: Sequence[StageResult]) -> list[ReasonSamples]:
    found: list[ReasonSamples] = []
    for result in results:
        samples: dict[str, list[Dropped]] = {}
        for dropped in result.dropped():
            shown = samples.setdefault(dropped.reason, [])
            if len(shown) < SAMPLES:
                shown.append(dropped)
        found += [
            ReasonSamples(result.name, reason, result.reasons[reason], shown)
            for reason, shown in sorted(samples.items())
        ]
    return found
