"""Draw charts as SVG text: lines with bands, and stacked columns.

Pure functions of numbers: no file, no clock, no script. Colours are names: a mark gets the class `c-<name>`, and the
style sheet of the page says what that is on a light, a dark or a printed page. Values show on hover, in <title>.
Not here: which charts a page gets.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate, pairwise

from autoclave.report.text import percent, quantity

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 28, 44
_BASE = HEIGHT - BOTTOM

PALETTE = ("accent", "greedy", "compile_error", "runtime_error", "output_limit", "time_limit", "memory_limit", "before")
"""Colours of curves that stand side by side."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Range and label of an axis. Bounds that are None follow the data; on a vertical axis zero is always in sight."""

    label: str
    is_share: bool = False
    low: float | None = None
    high: float | None = None

    def tick(self, value: float) -> str:
        return f"{100 * value:.4g}%" if self.is_share else quantity(value)

    def value(self, value: float) -> str:
        return percent(value) if self.is_share else quantity(value)


@dataclass(frozen=True, slots=True)
class Line:
    """One curve. `band` is `(x, low, high)` around it; points at an x in `hollow` are drawn as rings."""

    label: str
    colour: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    style: str = ""
    """`faint`, `dotted`, or nothing."""
    has_marks: bool = False
    hollow: frozenset[float] = frozenset()


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its words. Without values to draw `svg` is None and the page says so."""

    title: str
    note: str
    svg: str | None
    legend: tuple[tuple[str, str], ...] = ()
    """`(label, colour)`."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The plot area: values to places of the picture, whose y grows downwards."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return _BASE - (value - self.y_low) / (self.y_high - self.y_low) * (_BASE - TOP)

    def at(self, point: Point) -> str:
        return f"{self.x(point[0]):.1f},{self.y(point[1]):.1f}"


def tick_step(span: float, at_most: int) -> float:
    """The least of 1, 2, 5, 10, 20 ... (or 0.5, 0.2 ...) that cuts `span` into at most `at_most` parts."""
    size = 10.0 ** math.floor(math.log10(span / at_most))
    return next(size * part for part in (1, 2, 5, 10) if span / (size * part) <= at_most * (1 + 1e-9))


def ticks(low: float, high: float, at_most: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`; with `whole` only integers."""
    step = tick_step(high - low, at_most)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def line_chart(lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """Curves over `x`, with their bands behind them."""
    xs = sorted({place for line in lines for place, _ in line.points})
    ys = [value for line in lines for _, value in line.points]
    ys += [edge for line in lines for _, *edges in line.band for edge in edges]
    frame = _frame(xs[0], xs[-1], ys, x, y)
    marks = [_band(line, frame) for line in lines if line.band] + [_curve(line, frame) for line in lines]
    values = [(line, dict(line.points)) for line in lines]
    hovers: list[str] = []
    for index, place in enumerate(xs):
        here = [(line, at[place]) for line, at in values if place in at]
        texts = [(line.label, y.value(value)) for line, value in here]
        dots = [(frame.x(place), frame.y(value), line.colour) for line, value in here]
        edges = _middle(xs, index - 1, frame), _middle(xs, index, frame)
        hovers.append(_hover(edges, f"{x.label} {x.value(place)}", texts, dots))
    return _picture(frame, x, y, marks, hovers)


def line_figure(title: str, note: str, lines: Sequence[Line], x: Axis, y: Axis) -> Figure:
    """The lines that have points, all in the legend."""
    shown = [line for line in lines if line.points]
    svg = line_chart(shown, x, y) if shown else None
    return Figure(title, note, svg, tuple((line.label, line.colour) for line in shown))


def column_chart(
    layers: Sequence[tuple[str, str]], columns: Sequence[tuple[float, Sequence[float]]], x: Axis, y: Axis
) -> str:
    """Columns of stacked parts.

    `layers` are `(label, colour)` from the bottom up, `columns` `(x, [part of each layer])`. A part is drawn down to
    the axis and the parts below it over it, so that no rounding leaves a gap between two.
    """
    places = [place for place, _ in columns]
    width = min((after - before for before, after in pairwise(places)), default=1.0)
    wide = replace(x, low=places[0] - width / 2, high=places[-1] + width / 2)
    frame = _frame(0, 1, [sum(parts) for _, parts in columns], wide, y)
    pixels = frame.x(width) - frame.x(0)
    gap = 1.0 if pixels >= 4 else 0.0
    marks: list[str] = []
    hovers: list[str] = []
    for place, parts in columns:
        left = frame.x(place) - pixels / 2
        tops = list(accumulate(parts))
        for (_, colour), part, top in reversed(list(zip(layers, parts, tops, strict=True))):
            if part > 0:
                place_and_size = f'x="{left + gap / 2:.2f}" y="{frame.y(top):.2f}" width="{pixels - gap:.2f}"'
                marks.append(f'<rect class="part c-{colour}" {place_and_size} height="{_BASE - frame.y(top):.2f}"/>')
        shown = [(label, y.value(part)) for (label, _), part in zip(layers, parts, strict=True) if part > 0]
        hovers.append(_hover((left, left + pixels), f"{x.label} {x.value(place)}", shown[::-1], []))
    return _picture(frame, x, y, marks, hovers)


@dataclass(frozen=True, slots=True)
class Interval:
    """A share and how well it is known."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


def _frame(first: float, last: float, ys: Sequence[float], x: Axis, y: Axis) -> Frame:
    x_low = first if x.low is None else x.low
    x_high = last if x.high is None else x.high
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    low = min([0.0, *ys])
    high = max([0.0, *ys]) if y.high is None else y.high
    if low == high:
        high = low + (0.01 if y.is_share else 1.0)
    step = tick_step(high - low, 4)
    return Frame(x_low, x_high, math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


def _curve(line: Line, frame: Frame) -> str:
    path = " ".join(frame.at(point) for point in line.points)
    marks = "".join(
        f'<circle class="mark{" hollow" if point[0] in line.hollow else ""}" '
        f'cx="{frame.x(point[0]):.1f}" cy="{frame.y(point[1]):.1f}" r="3.5"/>'
        for point in (line.points if line.has_marks or len(line.points) == 1 else ())
    )
    return f'<g class="c-{line.colour}"><polyline class="line {line.style}" points="{path}"/>{marks}</g>'


def _band(line: Line, frame: Frame) -> str:
    upper = [frame.at((x, high)) for x, _, high in line.band]
    lower = [frame.at((x, low)) for x, low, _ in reversed(line.band)]
    return f'<polygon class="band c-{line.colour}" points="{" ".join(upper + lower)}"/>'


def _middle(xs: Sequence[float], index: int, frame: Frame) -> float:
    """The border between the hover areas of points `index` and `index + 1`; the edge of the plot at the ends."""
    if index < 0:
        return LEFT
    if index + 1 >= len(xs):
        return WIDTH - RIGHT
    return frame.x((xs[index] + xs[index + 1]) / 2)


def _hover(edges: Point, head: str, values: Sequence[tuple[str, str]], dots: Sequence[tuple[float, float, str]]) -> str:
    """An invisible area whose tooltip lists the values there; the style sheet shows its dots while it is pointed at."""
    title = escape("\n".join([head, *(f"{label}: {value}" for label, value in values)]))
    marks = "".join(f'<circle class="dot c-{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y, colour in dots)
    return (
        f'<g class="hover"><rect x="{edges[0]:.1f}" y="{TOP}" width="{edges[1] - edges[0]:.1f}" '
        f'height="{_BASE - TOP}"/>{marks}<title>{title}</title></g>'
    )


def _picture(frame: Frame, x: Axis, y: Axis, marks: Sequence[str], hovers: Sequence[str]) -> str:
    lines = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{frame.y(t):.1f}" y2="{frame.y(t):.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{frame.y(t) + 4:.1f}" text-anchor="end">{y.tick(t)}</text>'
        for t in ticks(frame.y_low, frame.y_high)
    ]
    below = [
        f'<line class="axis" x1="{frame.x(t):.1f}" x2="{frame.x(t):.1f}" y1="{_BASE}" y2="{_BASE + 4}"/>'
        f'<text class="tick" x="{frame.x(t):.1f}" y="{_BASE + 17}" text-anchor="middle">{x.tick(t)}</text>'
        for t in ticks(frame.x_low, frame.x_high, 8, whole=True)
    ]
    axis = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>'
    names = (
        f'<text class="unit" x="{LEFT}" y="14">{escape(y.label)}</text>'
        f'<text class="unit" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x.label)}</text>"
    )
    inner = "".join([*lines, *marks, axis, *below, names, *hovers])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y.label)}">{inner}</svg>'
