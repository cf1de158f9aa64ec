"""Inputs of growing length, near the constants of a task, so that neighbouring conditions such as `>` and `>=` differ.

Drawn from a generator that is handed in; nothing here knows what a task does with an input, except for the numbers
that the starts of the integer domain make.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

from autoclave.problems.curriculum.integers import INTEGERS
from autoclave.problems.curriculum.operations import LETTERS, Domain

Arguments = tuple[Any, ...]
"""Positional arguments of one call: plain data."""

_LIST_LENGTHS = (0, 1, 3, 4, 6, 8, 10, 12)
_TEXT_LENGTHS = (0, 1, 3, 5, 7, 9, 11, 14)
_OTHER_LETTERS = "ubcdlm"
_MAGNITUDES = (20, 50, 100, 999)
_NUM_NEAR = 4


def draw_inputs(domain: Domain, constants: Sequence[str], start: str | None, rng: random.Random) -> list[Arguments]:
    """Eight inputs for tasks with these constants, the shortest first.

    `start` names the start of an integer task; None means any.
    """
    if domain.name == "list":
        numbers = [int(value) for value in constants]
        return [(_draw_list(length, numbers, rng),) for length in _LIST_LENGTHS]
    if domain.name == "text":
        letters = [value for value in constants if value.isalpha()]
        return [(_draw_text(length, letters, rng),) for length in _TEXT_LENGTHS]
    pairs = {(rng.randint(-size // 4, size), rng.randint(0, size)) for size in _MAGNITUDES}
    while len(pairs) < len(_MAGNITUDES) + _NUM_NEAR:
        pairs.add(_draw_near([int(value) for value in constants], start, rng))
    return sorted(pairs, key=lambda pair: (len(f"{pair[0]} {pair[1]}"), pair))


def _draw_list(length: int, constants: Sequence[int], rng: random.Random) -> list[int]:
    items: list[int] = []
    for _ in range(length):
        kind = rng.random()
        if constants and kind < 0.4:
            items.append(rng.choice(constants) + rng.choice((-1, 0, 0, 1)))
        elif constants and kind < 0.55:
            items.append(rng.choice(constants) * rng.randint(-2, 4))
        elif items and kind > 0.85:
            items.append(rng.choice(items))
        else:
            items.append(rng.randint(-9, 25))
    return items


def _draw_text(length: int, letters: Sequence[str], rng: random.Random) -> str:
    text = ""
    for _ in range(length):
        kind = rng.random()
        if letters and kind < 0.35:
            text += rng.choice(letters)
        elif text and kind > 0.85:
            text += rng.choice(text)
        else:
            text += rng.choice(LETTERS + _OTHER_LETTERS)
    return text


def _draw_near(constants: Sequence[int], start: str | None, rng: random.Random) -> tuple[int, int]:
    """Small `a` and `b` from which `start` makes a number close to one of `constants`, where it can."""
    by_result = _small_pairs()[start or rng.choice(("sum", "product", "difference"))]
    wanted = (rng.choice(constants) if constants else rng.randint(0, 20)) + rng.randint(-2, 2)
    return rng.choice(by_result.get(wanted) or by_result[0])


@cache
def _small_pairs() -> dict[str, dict[int, list[tuple[int, int]]]]:
    """For each start of the integer domain: the pairs of small numbers that make each result."""
    pairs = [(a, b) for a in range(-4, 13) for b in range(13)]
    found: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for start in INTEGERS.starts:
        by_result: dict[int, list[tuple[int, int]]] = {}
        for a, b in pairs:
            names = {"a": a, "b": b}
            exec(start.code, {}, names)
            by_result.setdefault(names["n"], []).append((a, b))
        found[start.name] = by_result
    return found
