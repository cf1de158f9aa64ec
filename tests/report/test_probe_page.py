"""The page of probes: self-contained, with a line for each model, and safe to open whatever models are called."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from autoclave.evaluation.probing.report import ModelReport, ProbeReport
from autoclave.evaluation.probing.result import Errors, LayerErrors, ProbeResult
from autoclave.report.charts import PALETTE
from autoclave.report.probe import write_probe


def probed(*errors: float) -> ProbeResult:
    layers = tuple(LayerErrors(n, Errors(error, error / 2), Errors(0.4, math.nan)) for n, error in enumerate(errors))
    return ProbeResult(40, 10, 2, 3, 0, 0, Errors(0.35, 0.3), 0.34, layers)


def write(folder: Path, *models: tuple[str, ProbeResult]) -> str:
    found = tuple(ModelReport(name, "folder", 20, 8, 2, {}, {}, figures) for name, figures in models)
    report = ProbeReport(4, 3, 0, {"epochs": 10, "examples": None}, found)
    data, page = write_probe(report, folder)
    assert json.loads(data.read_text()) == report.to_json()
    return page.read_text("utf-8")


def test_each_model_has_a_line_of_its_own_colour_and_two_to_compare_it_with(tmp_path: Path):
    page = write(tmp_path, ("before", probed(0.3, 0.2, 0.1)), ("after", probed(0.3, 0.1, 0.05)))
    first = page[page.index("<svg") : page.index("</svg>")]
    for colour, name in zip(PALETTE, ("before", "after"), strict=False):
        assert len(re.findall(rf'<g class="c-{colour}"><polyline', first)) == 3
        assert f"{name}, shuffled labels: 0.4" in first
        assert f"{name}, training mean: 0.35" in first
    assert "before: 0.1\n" in first
    assert '<td class="figure">0.025</td>' in page  # of `after` in layer 2, within the range of training


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path):
    page = write(tmp_path, ("a", probed(0.3)))
    assert not re.search(r"@import|url\(|https?://|<script|<link|<img|src=", page)
    assert "default-src 'none'" in page


def test_a_name_is_text_whatever_it_says(tmp_path: Path):
    page = write(tmp_path, ("<b onclick='x'>\u202e", probed(0.3)))
    assert "<b onclick" not in page
    assert "&lt;b onclick" in page
    assert "\u202e" not in page


def test_models_with_other_numbers_of_layers_or_without_any_are_shown_as_far_as_they_go(tmp_path: Path):
    page = write(tmp_path, ("a", probed(0.3, 0.2)), ("b", probed(0.3, math.inf, 0.1)), ("c", probed()))
    assert page.count("<svg") == 2
    assert len(re.findall(r'<th scope="row">\d</th>', page)) == 2 * 3
    assert "Nothing was measured." in write(tmp_path, ("c", probed()))
