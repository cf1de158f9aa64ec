"""A check decides in two cells as in one process of plain CPython, except for the documented differences."""

from __future__ import annotations

import pytest

from tests.judge.checks.marshalling_cases import CAUGHT, DOCUMENTED, IMPORTS, PREAMBLE, Maker
from tests.judge.checks.two_cells import REFUSED, outcomes_in_one_process, outcomes_in_two_cells

pytest.importorskip("numpy")
BATCH = 500


def differences(seed: int) -> list[str]:
    maker = Maker(seed)
    cases = [maker.case() for _ in range(BATCH)]
    imports = IMPORTS + CAUGHT
    two = outcomes_in_two_cells(PREAMBLE, imports, cases)
    one = outcomes_in_one_process(PREAMBLE, imports, cases, DOCUMENTED)
    return [
        f"seed {seed}, case {i}: {case.body!r}\n  {case.expression}\n  one process: {b[:300]}\n  two cells:   {a[:300]}"
        for i, (case, a, b) in enumerate(zip(cases, two, one, strict=True))
        if a != b and a != REFUSED
    ]


@pytest.mark.parametrize("seed", range(4))
def test_random_checks_decide_in_two_cells_as_in_one_process(seed: int):
    assert differences(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_random_checks_decide_in_two_cells_as_in_one_process(seed: int):
    assert differences(seed) == []
