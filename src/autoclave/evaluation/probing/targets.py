"""Targets of probes: numbers, on one scale for each problem. numpy only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autoclave.core import Primitive

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def number_of(value: Primitive) -> float | None:
    """The number that a variable holds; None if it holds none: a bool, a NaN, or an integer beyond the floats."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]  an int or a float
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def scaled(values: Floats, problems: Integers, is_test: Flags) -> Floats:
    """Values on the scale of their problem: -1 is the smallest of its training values, 1 the largest.

        y = 2 (v - low) / (high - low) - 1

    Test values may lie beyond and are not cut. A problem has one scale for all of its variables.

    Args:
        values: (N,) finite.
        problems: (N,), which problem each is of.
        is_test: (N,); what is true there decides nothing.

    Returns:
        (N,); NaN for a problem whose training values are all equal, or that has none.
    """
    found = np.full(len(values), math.nan)
    for problem in np.unique(problems):
        rows = problems == problem
        learnt = values[rows & ~is_test] / 2  # of halves no difference leaves the floats
        if len(learnt) and learnt.min() < learnt.max():
            with np.errstate(over="ignore"):
                share = (values[rows] / 2 - learnt.min()) / (learnt.max() - learnt.min())
                found[rows] = 2 * share - 1
    return found
