"""Tables: no code raises, every mistake changes a value, and no two phrasings are equal."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import product

import pytest

from autoclave_environments.synthetic.behaviour import differ, outputs
from autoclave_environments.synthetic.compose import DOMAINS, Piece, SyntheticTask
from autoclave_environments.synthetic.inputs import probes
from autoclave_environments.synthetic.operations import Domain, Operation, fill


def tasks_of_each_piece(domain: Domain) -> Iterator[tuple[SyntheticTask, int]]:
    """A short task around each piece with each choice of parameters, and the place of the piece in it."""
    start = tuple(Piece(operation, (), 0) for operation in domain.starts if operation.name == "difference")
    plain = Piece(domain.finals[0], (), 0)
    for operation in domain.starts:
        yield SyntheticTask(domain, "call", (Piece(operation, (), 0),), (), plain), 0
    for piece in (piece for operation in domain.operations for piece in all_pieces(operation)):
        yield SyntheticTask(domain, "call", start, (piece,), plain), len(start)
    first_step = next(Piece(o, (), 0) for o in domain.operations if o.name in ("absolute", "reverse"))
    for piece in (piece for operation in domain.finals for piece in all_pieces(operation)):
        yield SyntheticTask(domain, "call", start, () if start else (first_step,), piece), 1


def all_pieces(operation: Operation) -> list[Piece]:
    choices = product(*(parameter.values() for parameter in operation.parameters))
    return [Piece(operation, values, 0) for values in choices if len(set(values)) == len(values)]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_every_mistake_changes_some_value_and_none_raises(domain):
    for task, place in tasks_of_each_piece(domain):
        for wrong in task.pieces[place].wrong:
            codes = (*task.codes[:place], wrong, *task.codes[place + 1 :])
            assert differ(domain, task.codes, codes, probes(domain)), (task.id, wrong)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_any_three_mistakes_in_a_row_still_end_in_a_short_time(domain):
    rng = random.Random(1)
    for _ in range(400):
        task = SyntheticTask.draw(rng, 3, [domain.name for domain in DOMAINS])
        codes = tuple(rng.choice((piece.code, *piece.wrong)) for piece in task.pieces)
        assert len(list(outputs(task.domain, codes, probes(task.domain)))) == len(probes(task.domain))


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_no_two_operations_share_a_phrasing(domain):
    said: dict[str, str] = {}
    for operation in domain.operations:
        for piece, phrasing in product(all_pieces(operation), operation.phrasings):
            text = fill(phrasing, piece.parameters)
            assert "{" not in text
            assert said.setdefault(text, piece.label) == piece.label


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_no_code_has_an_unfilled_placeholder(domain):
    for operation in (*domain.starts, *domain.operations, *domain.finals):
        for piece in all_pieces(operation):
            assert not any("{" in code for code in (piece.code, *piece.wrong))


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_every_phrasing_has_every_parameter(domain):
    for operation in (*domain.starts, *domain.operations, *domain.finals):
        for phrasing in operation.phrasings:
            assert sorted(set(re.findall(r"\{(.)\}", phrasing))) == list("pq"[: len(operation.parameters)])


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_names_are_unique_and_fit_an_id(domain):
    for table in (domain.starts, domain.operations, domain.finals):
        names = [operation.name for operation in table]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z]{3,}(-[a-z]{2,})*", name) for name in names)


def test_a_task_reads_as_a_function_and_as_a_script():
    operations = {operation.name: operation for operation in DOMAINS[0].operations}
    steps = (Piece(operations["keep-multiples"], ("3",), 0), Piece(operations["cap"], ("7",), 0))
    finals = {operation.name: operation for operation in DOMAINS[0].finals}
    function = SyntheticTask(DOMAINS[0], "call", (), steps, Piece(finals["sum"], (), 0))
    script = SyntheticTask(DOMAINS[0], "stdin", (), steps, Piece(finals["items"], (), 0))
    assert function.statement == "f(x) on a list: keep multiples of 3, then cap each at 7; return the sum."
    assert function.id == "list.call.keep-multiples-3.cap-7.sum.000"
    assert function.program(function.codes) == (
        "def f(x):\n    x = [v for v in x if v % 3 == 0]\n    x = [min(v, 7) for v in x]\n    return sum(x)"
    )
    assert script.statement == "read integers x: keep multiples of 3, then cap each at 7; print the list."
    assert script.program(("", "x = x[1:]", "x")) == "x = list(map(int, input().split()))\nx = x[1:]\nprint(*x)"
