"""Probes on synthetic hidden states: they find linear representations, and nothing else, from training examples."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from autoclave.evaluation.probing.regression import Fitting, fit
from autoclave.evaluation.probing.report import ModelReport, ProbeReport, describe
from autoclave.evaluation.probing.result import Examples, ProbeResult, probe_layers

EXAMPLES, LAYERS, SIZE, PROBLEMS = 4000, 3, 16, 20
PLANTED = 1
"""Layer that holds the targets."""


def made_up(seed: int = 0, *, count: int = EXAMPLES) -> Examples:
    """Values that are a linear function of layer `PLANTED` alone, on a scale and at a place of each problem's own.

    100 training batches of 32 in each of 10 epochs let Adam move a weight by up to 1 at a rate of 0.001; the planted
    ones, which are those of targets scaled to -1 to 1, are at most about 0.3.
    """
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(count, LAYERS, SIZE)).astype(np.float32)
    problems = np.arange(count) % PROBLEMS
    planted = np.clip(hidden[:, PLANTED] @ random.normal(size=SIZE) / 8, -1, 1)
    is_test = np.arange(count) // PROBLEMS % 5 == 0
    for problem in range(PROBLEMS):  # so that every scale is what it was planted as
        first, second = np.flatnonzero((problems == problem) & ~is_test)[:2]
        planted[first], planted[second] = -1, 1
    values = planted * 10.0 ** (problems % 7) + 3 * problems
    return Examples(torch.from_numpy(hidden), values, problems, is_test)


def test_probes_find_a_linear_representation_in_its_layer_only():
    found = probe_layers(made_up(), Fitting(), seed=0)
    assert found.layers[PLANTED].probe.mse < 0.02 * found.variance
    for layer in {*range(LAYERS)} - {PLANTED}:
        assert found.layers[layer].probe.mse > 0.9 * found.variance


def test_shuffled_labels_are_no_better_than_the_mean_whose_error_is_the_variance():
    found = probe_layers(made_up(), Fitting(), seed=0)
    assert found.mean.mse == pytest.approx(found.variance, rel=0.02)
    for layer in found.layers:
        assert layer.shuffled.mse == pytest.approx(found.variance, rel=0.1)


def test_figures_depend_on_the_seed_alone():
    first, same, other = (probe_layers(made_up(count=400), Fitting(epochs=2), seed=seed) for seed in (3, 3, 4))
    assert first == same
    assert first.layers != other.layers


def test_test_examples_do_not_influence_the_fit():
    examples = made_up(count=400)
    rows = ~examples.is_test
    changed = dataclasses.replace(
        examples,
        values=np.where(rows, examples.values, 1e9),
        hidden=torch.where(torch.from_numpy(rows)[:, None, None], examples.hidden, torch.tensor(1e3)),
    )
    asked = torch.randn(5, LAYERS, SIZE, generator=torch.Generator().manual_seed(0))

    def said(given: Examples) -> torch.Tensor:
        probes: list[torch.Tensor] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "autoclave.evaluation.probing.result.fit",
                lambda *a, **k: (found := fit(*a, **k), probes.append(found.predict(asked)))[0],
            )
            probe_layers(given, Fitting(standardise=True), seed=0)
        return probes[0]

    assert torch.equal(said(examples), said(changed))


def test_layers_fitted_together_are_as_if_fitted_alone():
    random = torch.Generator().manual_seed(0)
    hidden, targets = torch.randn(200, 3, 8, generator=random), torch.randn(200, 2, generator=random)
    together = fit(hidden, targets, Fitting(), seed=1)
    for layer in range(3):
        alone = fit(hidden[:, [layer]], targets[:, [1]], Fitting(), seed=1)
        torch.testing.assert_close(together.weights[layer, :, 1], alone.weights[0, :, 0])
        torch.testing.assert_close(together.bias[layer, 0, 1], alone.bias[0, 0, 0])


def test_a_probe_equals_a_torch_linear_layer_trained_by_adam():
    hidden = torch.randn(64, 1, 4, generator=torch.Generator().manual_seed(0))
    targets = hidden[:, 0, :1] * 0.5
    found = fit(hidden, targets, Fitting(epochs=3, batch_size=64), seed=0)
    layer = torch.nn.Linear(4, 1)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    for _ in range(3):  # one batch holds all, so order plays no part
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(layer(hidden[:, 0]), targets).backward()
        optimizer.step()
    torch.testing.assert_close(found.predict(hidden)[:, 0], layer(hidden[:, 0]).detach())


def test_standardised_units_have_mean_0_and_deviation_1_and_constant_ones_stay():
    hidden = torch.tensor([[[1.0, 5.0]], [[3.0, 5.0]]])
    found = fit(hidden, torch.zeros(2, 1), Fitting(standardise=True), seed=0)
    assert ((hidden - found.mean) / found.scale).tolist() == [[[-1, 0]], [[1, 0]]]


def small(values: list[float], problems: list[int], is_test: list[bool]) -> ProbeResult:
    columns = np.array(values, dtype=float), np.array(problems, dtype=int), np.array(is_test, dtype=bool)
    return probe_layers(Examples(torch.zeros(len(values), 1, 2), *columns), Fitting(), seed=0)


def test_errors_of_the_mean_are_as_by_hand():
    found = small([0, 4, 4, 3, 8], [0] * 5, [False, False, False, True, True])
    assert (found.train, found.test, found.test_outside) == (3, 2, 1)
    # Training targets -1, 1, 1 with mean 1/3; test targets 0.5 and 3.
    assert found.mean.mse == pytest.approx(((0.5 - 1 / 3) ** 2 + (3 - 1 / 3) ** 2) / 2)
    assert found.mean.inside == pytest.approx((0.5 - 1 / 3) ** 2)
    assert found.variance == pytest.approx(1.25**2)


def test_examples_without_a_scale_are_counted_and_left_out():
    found = small([0, 1, 1, 5, 5, 6, 2], [0, 0, 0, 1, 1, 1, 2], [False, False, True, False, False, True, True])
    assert (found.train, found.test, found.problems) == (2, 1, 1)
    assert (found.without_scale, found.untrained) == (3, 1)


@pytest.mark.parametrize("is_test", [[True, True], [False, False], []])
def test_without_training_or_test_examples_there_are_no_layers(is_test: list[bool]):
    found = small([float(n) for n in range(len(is_test))], [0] * len(is_test), is_test)
    assert found.layers == ()


def report(*models: tuple[str, ProbeResult]) -> ProbeReport:
    found = (ModelReport(name, f"{name}/model", 9, 2, 1, {"no_program": 6}, {}, probed) for name, probed in models)
    return ProbeReport(3, 2, 0, {"epochs": 10}, tuple(found))


def test_a_report_has_every_figure_and_null_where_there_is_none():
    measured = small([0, 4, 8], [0] * 3, [False, False, True])
    empty = small([0, 4], [0] * 2, [False, False])
    plain = report(("a", measured), ("b", empty)).to_json()
    assert plain["format"] == "autoclave-probe/1"
    assert plain["models"][0]["layers"] == [
        {
            "layer": 0,
            "mse": measured.layers[0].probe.mse,
            "mse_inside": None,  # the one test target is 3
            "shuffled": {"mse": measured.layers[0].shuffled.mse, "mse_inside": None},
        }
    ]
    assert plain["models"][1]["layers"] == []
    assert plain["models"][1]["baseline"] == {"training_mean": {"mse": None, "mse_inside": None}, "variance": None}


def test_the_table_names_models_layers_and_why_sub_tasks_are_missing():
    measured = small([0, 4, 8, 2], [0] * 4, [False, False, True, True])
    lines = describe(report(("before", measured), ("after", small([], [], [])))).splitlines()
    assert lines[1].split() == ["before", "3/9", "2", "2", "1"]
    assert "layer         before    shuffled" in lines
    assert f"{measured.layers[0].probe.mse:.4f}" in "\n".join(lines)
    assert "after: 6 sub-tasks: no program" in lines


def test_huge_test_values_give_an_infinite_error():
    found = small([0, 1e-300, 1e300, 5e-301], [0] * 4, [False, False, True, True])
    assert math.isinf(found.layers[0].probe.mse)
    assert math.isfinite(found.layers[0].probe.inside)
    assert report(("a", found)).to_json()["models"][0]["layers"][0]["mse"] is None
