"""Draw what a step did when: a lane for each role and replica over the seconds of the step, as SVG text.

A lane with few spans at a time shows each as a bar, in rows. One with many shows how many were under way, averaged over
narrow columns; so the size of a picture depends on its lanes, and not on how many spans they have. Spans of later steps
are paler. Pure functions; colours are classes as in `charts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, groupby

from autoclave.core.timeline import Interval, Role, Span
from autoclave.report.charts import tick_step, ticks
from autoclave.report.text import count, quantity
from autoclave.runs.timeline import Rows

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1120, 172, 12, 10, 40
_INNER = WIDTH - LEFT - RIGHT

ROWS = 6
"""Most bars above each other in a lane; with more at a time it is drawn as a density."""
BARS = 120
"""Most bars in a lane, likewise."""
LANES = 8
"""Most lanes of a role; what further replicas did is drawn together, in one more."""
COLUMNS = 320
"""Columns of a density."""
HOVERS = 48
"""Strips that a density is cut into to point at."""

ROW_HEIGHT, DENSITY_HEIGHT, GAP = 13, 46, 10
BETWEEN = 0.8
"""Space behind a bar, so that one that begins as another ends can be told from it."""

COLOURS = {
    Role.SAMPLER: "accepted",
    Role.JUDGE: "wrong_answer",
    Role.TRAINER: "compile_error",
    Role.PUBLISH: "runtime_error",
    Role.EVALUATION: "time_limit",
    Role.CHECKPOINT: "bad_format",
}


@dataclass(frozen=True, slots=True)
class Lane:
    """The spans of a role on one replica, by their start, and what it is called."""

    role: Role
    label: str
    spans: tuple[Span, ...]


def gantt(spans: Sequence[Span], window: Interval, step: int) -> str:
    """The picture of `spans`, which overlap `window`; those of steps after `step` are paler."""
    y, parts = float(TOP), list[str]()
    for lane in lanes(spans):
        rows = _packed(lane, window)
        height = max(rows) * ROW_HEIGHT + ROW_HEIGHT if rows else DENSITY_HEIGHT
        marks = _bars(lane, rows, window, step, y) if rows else _density(lane, window, step, y)
        parts += [_lane_name(lane.label, y + height / 2), f'<g class="c-{COLOURS[lane.role]}">{"".join(marks)}</g>']
        y += height + GAP
    grid = _grid(window[1] - window[0], y)
    name = f"what step {step} did when"
    inner = "".join([*grid, *parts])
    return f'<svg viewBox="0 0 {WIDTH} {y + BOTTOM - GAP:.0f}" role="img" aria-label="{name}">{inner}</svg>'


def lanes(spans: Iterable[Span]) -> list[Lane]:
    """By role, and within it by replica; those beyond `LANES` of a role are one lane."""
    ordered = sorted(spans, key=lambda span: (list(Role).index(span.role), natural(span.lane), span.start))
    found: list[Lane] = []
    for role, of_role in groupby(ordered, key=lambda span: span.role):
        replicas = [(name, tuple(of_lane)) for name, of_lane in groupby(of_role, key=lambda span: span.lane)]
        shown = replicas if len(replicas) <= LANES + 1 else replicas[:LANES]
        found += [Lane(role, f"{role} {name}".strip(), of_lane) for name, of_lane in shown]
        if rest := replicas[len(shown) :]:
            together = sorted((span for _, of_lane in rest for span in of_lane), key=lambda span: span.start)
            found.append(Lane(role, f"{role}, {len(rest)} more", tuple(together)))
    return found


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that puts `replica 2` before `replica 10`."""
    groups = ("".join(part) for _, part in groupby(name, key=str.isdecimal))
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in groups)


def in_flight(spans: Iterable[Span], window: Interval, columns: int) -> list[float]:
    """Number of spans under way in each of `columns` equal parts of `window`, averaged over the part."""
    low, length = window[0], (window[1] - window[0]) or 1.0
    edges, whole = [0.0] * columns, [0] * (columns + 1)
    for span in spans:
        first, last = (min(max((time - low) / length, 0.0), 1.0) * columns for time in span.interval)
        left, right = min(int(first), columns - 1), min(int(last), columns - 1)
        if left == right:
            edges[left] += last - first
            continue
        edges[left] += left + 1 - first
        edges[right] += last - right
        whole[left + 1] += 1  # begins to cover whole columns
        whole[right] -= 1
    return [inner + edge for inner, edge in zip(accumulate(whole[:-1]), edges, strict=True)]


def _packed(lane: Lane, window: Interval) -> list[int]:
    """The row of each bar; empty where there are too many of them."""
    if len(lane.spans) > BARS:
        return []
    rows = Rows()
    taken = [rows.take(span.interval) for span in lane.spans]
    return taken if len(rows) <= ROWS else []


def _x(time: float, window: Interval) -> float:
    share = (time - window[0]) / ((window[1] - window[0]) or 1.0)
    return LEFT + min(max(share, 0.0), 1.0) * _INNER


def _bars(lane: Lane, rows: Sequence[int], window: Interval, step: int, y: float) -> list[str]:
    marks: list[str] = []
    for span, row in zip(lane.spans, rows, strict=True):
        start, end = (_x(time, window) for time in span.interval)
        what = "".join(f"\n{key.replace('_', ' ')}: {value}" for key, value in span.attributes.items())
        title = f"{lane.label}: {span.name}, {_seconds(span.start, window)} to {_seconds(span.end, window)}{what}"
        place = f'x="{start:.1f}" y="{y + row * ROW_HEIGHT:.0f}" width="{max(end - start - BETWEEN, 1.0):.1f}"'
        marks.append(
            f'<rect class="part{" ahead" if span.step > step else ""}" {place} height="{ROW_HEIGHT - 2}">'
            f"<title>{escape(title)}</title></rect>"
        )
    return marks


def _density(lane: Lane, window: Interval, step: int, y: float) -> list[str]:
    """An area of all spans, over it one of those of `step`, and strips that say the numbers."""
    everything = in_flight(lane.spans, window, COLUMNS)
    own = in_flight((span for span in lane.spans if span.step <= step), window, COLUMNS)
    most = max(max(everything), 1e-9)
    base = y + DENSITY_HEIGHT
    marks = [_area(everything, most, base, " ahead")] if own != everything else []
    marks.append(_area(own, most, base, ""))
    marks.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base:.0f}" y2="{base:.0f}"/>')
    marks.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 10:.0f}" text-anchor="end">{quantity(round(most))}</text>')
    strip, length = _INNER / HOVERS, (window[1] - window[0]) / HOVERS
    for index, level in enumerate(in_flight(lane.spans, window, HOVERS)):
        title = f"{lane.label}: {quantity(level)} under way, {index * length:.2f} s to {(index + 1) * length:.2f} s"
        marks.append(
            f'<g class="hover"><rect x="{LEFT + index * strip:.1f}" y="{y:.0f}" width="{strip:.1f}" '
            f'height="{DENSITY_HEIGHT}"/><title>{escape(title)}</title></g>'
        )
    return marks


def _area(levels: Sequence[float], most: float, base: float, css_class: str) -> str:
    """Steps as high as the levels; equal neighbours are one."""
    width, place, path = _INNER / len(levels), 0, [f"M{LEFT} {base:.0f}"]
    for height, same in groupby(levels, key=lambda level: f"{base - level / most * (DENSITY_HEIGHT - 2):.1f}"):
        place += len(list(same))
        path.append(f"V{height}H{LEFT + place * width:.1f}")
    return f'<path class="part{css_class}" d="{"".join(path)}V{base:.0f}Z"/>'


def _lane_name(label: str, y: float) -> str:
    shown = label if len(label) <= 18 else f"{label[:17]}…"
    return f'<text class="name" x="0" y="{y + 5:.0f}">{escape(shown)}<title>{escape(label)}</title></text>'


def _grid(length: float, bottom: float) -> list[str]:
    lines: list[str] = []
    for tick in ticks(0, length, 10) if length else []:
        x = LEFT + tick / length * _INNER
        decimals = max(0, -int(f"{tick_step(length, 10):e}".split("e")[1]))
        lines.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom - 2:.0f}"/>'
            f'<text class="tick" x="{x:.1f}" y="{bottom + 12:.0f}" text-anchor="middle">{tick:.{decimals}f}</text>'
        )
    middle = LEFT + _INNER / 2
    lines.append(f'<text class="unit" x="{middle:.0f}" y="{bottom + 28:.0f}" text-anchor="middle">seconds</text>')
    return lines


def _seconds(time: float, window: Interval) -> str:
    return f"{time - window[0]:.3f} s"


def told(spans: Sequence[Span]) -> str:
    """Number of spans of each kind in a picture, in words."""
    nouns = {Role.SAMPLER: "request", Role.JUDGE: "reward", Role.TRAINER: "update"}
    numbers = {role: sum(span.role is role for span in spans) for role in nouns}
    return ", ".join(count(number, nouns[role]) for role, number in numbers.items() if number)
