"""Inputs of growing length, near the constants of a task, so that similar conditions such as `>` and `>=` differ.

Independent of the values of tasks, except for the results of the starts of the integer domain.
"""

import random
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

from autoclave_environments.synthetic.operations import LETTERS, Domain, Parameter
from autoclave_environments.synthetic.tables import INTEGERS

Arguments = tuple[Any, ...]
"""Positional arguments of one call: plain data."""

_LIST_LENGTHS = (0, 1, 3, 4, 6, 8, 10, 12)
_TEXT_LENGTHS = (0, 1, 3, 5, 7, 9, 11, 14)
_OTHER_LETTERS = "ubcdlm"
_MAGNITUDES = (20, 50, 100, 999)
_NEAR = 13  # above every constant
_NUM_PROBE_SETS = {"list": 4, "text": 8}  # letters hit each other less often than numbers do


def draw_inputs(domain: Domain, constants: Sequence[str], start: str | None, rng: random.Random) -> list[Arguments]:
    """Return eight inputs for a task with these constants, shortest first; `start` is the start of an integer task."""
    if start:
        return _draw_pairs([int(value) for value in constants], start, rng)
    if domain.name == "list":
        numbers = [int(value) for value in constants]
        return [(_draw_list(length, numbers, rng),) for length in _LIST_LENGTHS]
    letters = [value for value in constants if value.isalpha()]
    return [(_draw_text(length, letters, rng),) for length in _TEXT_LENGTHS]


@cache
def probes(domain: Domain) -> tuple[Arguments, ...]:
    """Return the inputs on which behaviour is compared, around every constant; the same for every seed."""
    rng = random.Random(f"probes of {domain.name}")
    if domain.starts:  # every start has every small number among its results on these
        near = [(a, b) for a in range(_NEAR) for b in (0, 1, a + 4)]
        far = [(rng.randint(-size // 4, size), rng.randint(0, size)) for size in 3 * _MAGNITUDES]
        return (*near, *far)
    constants = (Parameter.NUMBER if domain.name == "list" else Parameter.LETTER).values()
    sets = [draw_inputs(domain, constants, None, rng) for _ in range(_NUM_PROBE_SETS[domain.name])]
    return tuple(arguments for inputs in sets for arguments in inputs)


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


def _draw_pairs(constants: Sequence[int], start: str, rng: random.Random) -> list[Arguments]:
    """Return pairs of growing size; for half of them the result of `start` is close to one of `constants`."""
    pairs = {(rng.randint(-size // 4, size), rng.randint(0, size)) for size in _MAGNITUDES}
    by_result = _small_pairs(start)
    while len(pairs) < 2 * len(_MAGNITUDES):
        result = (rng.choice(constants) if constants else rng.randint(0, 9)) + rng.randint(-2, 2)
        pairs.add(rng.choice(by_result.get(result, by_result[0])))
    return sorted(pairs, key=lambda pair: (len(f"{pair[0]} {pair[1]}"), pair))


@cache
def _small_pairs(start: str) -> dict[int, list[tuple[int, int]]]:
    """Return the pairs of small numbers by the result of `start`."""
    code = next(operation.code for operation in INTEGERS.starts if operation.name == start)
    by_result: dict[int, list[tuple[int, int]]] = {}
    for a, b in product(range(-4, _NEAR), range(_NEAR)):
        names = {"a": a, "b": b}
        exec(code, {}, names)
        by_result.setdefault(names["n"], []).append((a, b))
    return by_result
