"""A second opinion on what programs do: sources run whole, on inputs drawn independently of the generator's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

from autoclave.core import CallTests, Problem, StdinTests
from autoclave.problems import Demonstration


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
        return (*product(range(-1, 11), repeat=2), *((rng.randint(-99, 99), rng.randint(0, 99)) for _ in range(40)))
    if domain == "text":
        alphabets = ("aeoinrstubcdlm", "aeoinrst", "asto")
        return tuple(("".join(rng.choices(alphabets[i % 3], k=i % 16)),) for i in range(150))
    bounds = [(0, 12), (-15, 30)]
    return tuple(([rng.randint(*bounds[i % 2]) for _ in range(i % 15)],) for i in range(150))


def behaviour(task_id: str, source: str) -> tuple[str, ...]:
    domain = task_id.split(".")[0]
    return (domain, *printed(source, own_probes(domain)))


def inputs_and_outputs(problem: Problem) -> tuple[list[tuple[object, ...]], list[str]]:
    """The tests of a problem as arguments and text, read as a judge would."""
    if isinstance(problem.tests, CallTests):
        outputs = [case.output for case in problem.tests.cases]
        texts = [" ".join(map(str, output)) if isinstance(output, list) else str(output) for output in outputs]
        return [tuple(case.arguments) for case in problem.tests.cases], texts
    assert isinstance(problem.tests, StdinTests)
    return [(case.input.removesuffix("\n"),) for case in problem.tests.cases], [
        case.output.removesuffix("\n") for case in problem.tests.cases
    ]


def passes(problem: Problem, source: str) -> bool:
    inputs, outputs = inputs_and_outputs(problem)
    try:
        return printed(source, inputs) == outputs
    except (TypeError, ValueError, IndexError, NameError, ZeroDivisionError):
        return False
