from __future__ import annotations

import json
from dataclasses import asdict

from autoclave.algorithms import Diagnostics, step_metrics

PARTS = [
    Diagnostics(3, {"loss": 1.0}, {"approx_kl": 6.0}, {"ratio_max": 1.5}),
    Diagnostics(1, {"loss": 0.5}, {"approx_kl": 2.0}, {"ratio_max": 2.5}),
    Diagnostics(0, {"loss": 0.0}, {"approx_kl": 0.0}),  # a micro-batch in which nothing trains
]


def test_totals_add_means_are_over_tokens_and_maxima_are_the_largest():
    assert step_metrics(PARTS) == {"loss": 1.5, "approx_kl": 2.0, "ratio_max": 2.5}
    assert step_metrics(reversed(PARTS)) == step_metrics(PARTS)


def test_without_trained_tokens_only_totals_remain():
    assert step_metrics(PARTS[2:]) == {"loss": 0.0}
    assert step_metrics([]) == {}


def test_diagnostics_cross_processes_as_json():
    assert [Diagnostics(**json.loads(json.dumps(asdict(part)))) for part in PARTS] == PARTS
