"""The default curriculum and its demonstrations, built once, and a second opinion on what programs do."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from autoclave.config.problems import CurriculumConfig
from autoclave.config.training import SftConfig
from autoclave.problems import Curriculum, Demonstration, build_curriculum, demonstrations


@pytest.fixture(scope="session")
def curriculum() -> Curriculum:
    return build_curriculum(CurriculumConfig())


@pytest.fixture(scope="session")
def shown() -> list[Demonstration]:
    return demonstrations(CurriculumConfig(), SftConfig())


def program_of(demonstration: Demonstration) -> str:
    return demonstration.response.removeprefix("```python\n").removesuffix("\n```")


def operation_names(task_id: str) -> list[str]:
    """`domain.name` of the operations, read off an id such as `integer.call.sum.add-3.square.number.0100`."""
    domain, _style, *labels, _final, _phrasings = task_id.split(".")
    names = [label if label[-2] != "-" else label[:-2] for label in labels]
    names = [name if name[-2] != "-" else name[:-2] for name in names]
    return [f"{domain}.{name}" for name in (names[1:] if domain == "integer" else names)]


def adjacent_pairs(task_id: str) -> set[tuple[str, str]]:
    names = operation_names(task_id)
    return set(pairwise(names))


def printed(source: str, inputs: Sequence[tuple[Any, ...]]) -> list[str]:
    """What a whole program prints, or what it would print if its function's values were printed, item by item.

    Executes the source itself, unlike the generator, which executes single operations.
    """
    code = compile(source, "<program>", "exec")
    texts: list[str] = []
    if source.startswith("def f("):
        names: dict[str, Any] = {}
        exec(code, names)
        for arguments in inputs:
            texts.append(as_text(names["f"](*arguments)))
        return texts
    for arguments in inputs:
        line = as_text(arguments[0] if len(arguments) == 1 else arguments)
        exec(code, {"input": lambda line=line: line, "print": lambda *values: texts.append(as_text(values))})
    return texts


def as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


@cache
def own_probes(domain: str) -> tuple[tuple[Any, ...], ...]:
    """Many inputs, drawn independently of the generator's."""
    rng = random.Random(f"own probes {domain}")
    if domain == "integer":
        return tuple((rng.randint(-12, 40), rng.randint(-12, 40)) for _ in range(150))
    if domain == "text":
        return tuple(("".join(rng.choices("aeoinrstubcdlm", k=length % 16)),) for length in range(100))
    return tuple(([rng.randint(-15, 30) for _ in range(length % 14)],) for length in range(100))


def behaviour(task_id: str, source: str) -> tuple[str, ...]:
    domain = task_id.split(".")[0]
    return (domain, *printed(source, own_probes(domain)))
