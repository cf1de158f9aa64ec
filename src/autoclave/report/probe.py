"""The page of probes: errors by layer, a line for each model. One file that loads nothing (`pages/html.py`)."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from autoclave.core.files import write_atomically
from autoclave.evaluation.probing.report import ModelReport, ProbeReport
from autoclave.evaluation.probing.result import Errors, LayerErrors
from autoclave.report.charts import PALETTE, Axis, Figure, Line, line_figure
from autoclave.report.html import render_page

_HERE = Path(__file__).parent


def write_probe(report: ProbeReport, folder: Path) -> tuple[Path, Path]:
    """The paths of `probe.json` and `probe.html`, written into `folder`.

    Raises InputError: nothing can be written there.
    """
    data, page = folder / "probe.json", folder / "probe.html"
    write_atomically(data, json.dumps(report.to_json(), indent=2) + "\n")
    write_atomically(page, render(report))
    return data, page


def render(report: ProbeReport) -> str:
    return render_page(
        _HERE / "probe.html.j2",
        None,
        report=report,
        models=list(zip(report.models, cycle(PALETTE), strict=False)),
        figures=[
            _figure(
                report,
                "All variables",
                "Targets that lie beyond those of training count as they are.",
                lambda errors: errors.mse,
            ),
            _figure(
                report,
                "Within the range of training",
                "Only variables whose target lies between the least and the greatest of training.",
                lambda errors: errors.inside,
            ),
        ],
        layers=range(max((len(model.probed.layers) for model in report.models), default=0)),
    )


def _figure(report: ProbeReport, title: str, note: str, of: Callable[[Errors], float]) -> Figure:
    models = list(zip(report.models, cycle(PALETTE), strict=False))
    lines = [line for model, colour in models for line in _lines(model, colour, of)]
    figure = line_figure(title, note, lines, Axis("layer"), Axis("mean squared error"))
    return replace(figure, legend=tuple((model.name, colour) for model, colour in models))


def _lines(model: ModelReport, colour: str, of: Callable[[Errors], float]) -> list[Line]:
    def curve(label: str, style: str, errors: Callable[[LayerErrors], Errors]) -> Line:
        points = [(float(each.layer), of(errors(each))) for each in model.probed.layers]
        return Line(label, colour, [point for point in points if math.isfinite(point[1])], style=style)

    return [
        Line(model.name, colour, curve("", "", lambda each: each.probe).points, has_marks=True),
        curve(f"{model.name}, shuffled labels", "faint", lambda each: each.shuffled),
        curve(f"{model.name}, training mean", "dotted", lambda each: model.probed.mean),
    ]
