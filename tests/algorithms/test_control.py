from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoclave.algorithms import adapted_kl_coefficient, fixed


def adapted(coefficient: float, kl: float) -> float:
    return adapted_kl_coefficient((coefficient,), {"reward_kl_per_response": kl}, target=6.0, gain=0.1)[0]


def test_the_coefficient_moves_towards_the_target_by_at_most_a_fiftieth():
    assert adapted(0.2, 6.6) == pytest.approx(0.2 * 1.01)  # error 0.1, gain 0.1
    assert adapted(0.2, 600.0) == pytest.approx(0.2 * 1.02)
    assert adapted(0.2, 6.0) == 0.2
    assert adapted(0.2, 0.0) == pytest.approx(0.2 * 0.98)


@given(st.floats(1e-6, 1e3), st.floats(-100, 100))
def test_the_coefficient_stays_positive(coefficient, kl):
    assert adapted(coefficient, kl) > 0


def test_without_a_measurement_nothing_changes():
    assert adapted_kl_coefficient((0.2,), {}, target=6.0, gain=0.1) == (0.2,)
    assert fixed((0.2,), {"reward_kl_per_response": 9.0}) == (0.2,)
