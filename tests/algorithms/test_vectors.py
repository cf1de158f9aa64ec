"""The numbers in docs/reference/algorithms are what the code does, on the batch of the index page."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from autoclave.algorithms import build_algorithm, step_metrics
from autoclave.algorithms.choices import CHOICES
from tests.algorithms.vectors import PAGES, columns, expected, page, settings_of

PAGE_NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "index")
VECTORS = [(name, number) for name in PAGE_NAMES for number in range(len(page(name)))]
EVERY_VECTOR = pytest.mark.parametrize(("name", "number"), VECTORS, ids=lambda part: str(part))
PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 3e-5)], ids=["float64", "float32"]
)


def gradient(leaf: torch.Tensor) -> list[float]:
    return [0.0] * len(leaf) if leaf.grad is None else leaf.grad.tolist()


def test_every_algorithm_has_a_page_and_begins_with_its_defaults():
    assert sorted(CHOICES) == PAGE_NAMES
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    for name in CHOICES:
        assert page(name)[0]["settings"] == {"name": name}
        assert f"[`{name}`]({name}.md)" in index


@EVERY_VECTOR
@PRECISIONS
def test_the_code_gives_the_numbers_of_the_page(learn, name, number, dtype, tolerance):
    vector = page(name)[number]
    algorithm = build_algorithm(settings_of(vector))
    batch = learn(algorithm, columns(settings_of(vector), dtype))
    found = algorithm.loss(batch)
    found.total.backward()
    zeros = [0.0] * len(batch["row"])
    close = {"rel": tolerance, "abs": tolerance}
    assert batch["advantages"].tolist() == pytest.approx(vector["advantages"], **close)
    assert batch["weights"].tolist() == pytest.approx(vector["weights"], **close)
    assert found.total.item() == pytest.approx(vector.get("loss", 0.0), **close)
    assert gradient(batch["log_probs"]) == pytest.approx(vector.get("by_log_prob", zeros), **close)
    assert gradient(batch["entropy"]) == pytest.approx(vector.get("by_entropy", zeros), **close)
    assert algorithm.needs_critic == ("critic_loss" in vector)
    if algorithm.needs_critic:
        of_critic = algorithm.critic_loss(batch)
        of_critic.total.backward()
        trained = batch["in_loss"][batch["row"]]
        assert batch["returns"][trained].tolist() == pytest.approx(
            torch.tensor(vector["returns"])[trained].tolist(), **close
        )
        assert of_critic.total.item() == pytest.approx(vector["critic_loss"], **close)
        assert gradient(batch["values"]) == pytest.approx(vector["by_value"], **close)


@EVERY_VECTOR
def test_the_reference_gives_the_numbers_of_the_page(name, number):
    vector = page(name)[number]
    found = expected(settings_of(vector))
    assert vector == {"settings": vector["settings"], **{key: pytest.approx(value) for key, value in found.items()}}


def test_no_two_algorithms_have_one_gradient():
    gradients = {name: torch.tensor(page(name)[0]["by_log_prob"]) for name in PAGE_NAMES}
    assert len(gradients) == 9
    for one, other in combinations(gradients, 2):
        distance = (gradients[one] - gradients[other]).norm() / gradients[one].norm()
        assert distance > 0.01, (one, other)


@pytest.mark.parametrize("name", ["grpo", "grpo_plus", "dr_grpo", "gspo", "cispo"])
def test_rewards_that_are_equal_fractions_pull_nobody_apart(learn, name):
    """Group "b" earned 0.1 three times, which float32 cannot average exactly."""
    settings = settings_of(page(name)[0])
    batch = learn(build_algorithm(settings), columns(settings, torch.float32))
    inside = (batch["group"] == 1)[batch["row"]]
    assert inside.any()
    assert not batch["advantages"][inside].any()


def test_metrics_of_the_batch_can_be_told_from_the_page(learn):
    settings = settings_of(page("cispo")[0])
    algorithm = build_algorithm(settings)
    batch = learn(algorithm, columns(settings))
    metrics = step_metrics([algorithm.loss(batch).diagnostics])
    ratios = (batch["log_probs"] - batch["old_log_probs"]).exp()[batch["weights"] > 0]
    assert metrics["ratio_max"] == pytest.approx(ratios.max().item())
    assert metrics["clip_fraction_upper"] == pytest.approx((ratios > 5).double().mean().item())
