"""Guards name what is not finite, and say nothing of what is."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from autoclave.core import FaultError
from autoclave.workers.trainer.trained_model import gradients_of, require_finite

FLOATS = st.lists(st.floats(width=32), max_size=6)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), FLOATS, max_size=4))
def test_it_raises_if_and_only_if_a_number_is_not_finite(columns: dict[str, list[float]]):
    tensors = {name: torch.tensor(values) for name, values in columns.items()}
    bad = [name for name, values in columns.items() if not all(map(math.isfinite, values))]
    if not bad:
        require_finite(tensors, "here", "fix")
        return
    with pytest.raises(FaultError) as caught:
        require_finite(tensors, "here", "fix")
    assert str(caught.value).startswith(f"here: not finite: {bad[0]} (")


def test_the_message_names_three_tensors_and_counts_the_others():
    tensors = {name: torch.tensor([math.nan, 1.0, math.inf]) for name in "abcde"}
    with pytest.raises(FaultError, match=r"a \(2 of 3\), b \(2 of 3\), c \(2 of 3\) and 2 more tensors\. Stop\.$"):
        require_finite(tensors, "step 3", "Stop.")


def test_whole_numbers_are_finite():
    require_finite({"tokens": torch.tensor([1, 2])}, "here", "fix")


def test_gradients_have_the_names_of_their_parameters():
    layer = torch.nn.Linear(2, 1)
    layer.weight.sum().backward()
    assert list(gradients_of(layer.named_parameters())) == ["gradient of weight"]  # the bias has none
