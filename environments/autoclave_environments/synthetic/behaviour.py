"""Values that a pipeline computes from inputs, and equality of two pipelines.

Code of the tables is executed in this process: we wrote it, and it is total and quick. Nothing that a model wrote ever
comes here. Each piece is compiled once for all pipelines that use it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from autoclave_environments.synthetic.compose import SyntheticTask
from autoclave_environments.synthetic.inputs import Arguments, probes
from autoclave_environments.synthetic.operations import Domain


def outputs(domain: Domain, codes: Sequence[str], inputs: Sequence[Arguments]) -> Iterator[Any]:
    """Yield the final value of the pipeline with these pieces on each of `inputs`."""
    for arguments in inputs:
        yield from islice(intermediate_values(domain, codes, arguments), len(codes) - 1, None)


def intermediate_values(domain: Domain, codes: Sequence[str], arguments: Arguments) -> Iterator[Any]:
    """Yield the value after each piece; the last one is returned or printed."""
    *body, final = codes
    parameters = [domain.arguments, *[domain.variable] * (len(body) - 1)]
    value: Any = None
    for number, (names, code) in enumerate(zip(parameters, body, strict=True)):
        function = _compiled(names, code, domain.variable)
        value = function(value) if number else function(*arguments)
        yield value
    yield _compiled(domain.variable, "", final)(value)


def differ(
    domain: Domain, ours: Sequence[str], theirs: Sequence[str], inputs: Sequence[Arguments], *, at_least: int = 1
) -> bool:
    """Return whether two pipelines give different values for at least `at_least` of `inputs`."""
    pairs = zip(outputs(domain, ours, inputs), outputs(domain, theirs, inputs), strict=True)
    differences = (pair for pair in pairs if pair[0] != pair[1])
    return sum(1 for _ in islice(differences, at_least)) == at_least


def signature(domain: Domain, codes: tuple[str, ...]) -> str:
    """Return a digest of the values on all probes: equal for equal behaviour, in any wording or style."""
    return hashlib.sha256("\n".join((domain.name, *probe_values(domain, codes))).encode()).hexdigest()


@lru_cache(maxsize=4)  # called twice in a row: for `is_usable`, and for `signature`
def probe_values(domain: Domain, codes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str, outputs(domain, codes, probes(domain))))


def mutants(task: SyntheticTask) -> Iterator[tuple[str, ...]]:
    """Yield the pieces of each program with exactly one mistake: one wrong piece, or one operation left out."""
    right = task.codes
    for place, piece in enumerate(task.pieces):
        left_out = ("",) if piece in task.steps else ()
        for wrong in (*piece.wrong, *left_out):
            yield (*right[:place], wrong, *right[place + 1 :])


@cache
def _compiled(parameters: str, code: str, result: str) -> Callable[..., Any]:
    lines = [f"    {line}" for line in code.splitlines()]
    namespace: dict[str, Any] = {}
    exec("\n".join([f"def step({parameters}):", *lines, f"    return {result}"]), namespace)
    return namespace["step"]
