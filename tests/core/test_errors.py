"""The tree of errors: parents, exit codes follow from them, and all cross processes."""

from __future__ import annotations

import multiprocessing

import pytest

from autoclave.core import errors
from autoclave.core.errors import AutoclaveError, FaultError, HostError, IncompleteError, InputError

ALL = [value for value in vars(errors).values() if isinstance(value, type)]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_the_common_base_and_a_sentence(kind: type[Exception]):
    assert issubclass(kind, AutoclaveError)
    assert (kind.__doc__ or "").endswith(".")


@pytest.mark.parametrize("kind", ALL)
def test_every_error_arrives_in_another_process_with_its_message(kind: type[Exception]):
    here, there = multiprocessing.Pipe()
    with here, there:
        here.send(kind("file:1: what is wrong"))
        arrived = there.recv()
    assert (type(arrived), str(arrived)) == (kind, "file:1: what is wrong")


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind is not AutoclaveError])
def test_every_error_is_of_exactly_one_sort(kind: type[Exception]):
    assert sum(issubclass(kind, sort) for sort in (InputError, HostError, FaultError, IncompleteError)) == 1


@pytest.mark.parametrize(
    ("kind", "parent"),
    [(InputError, ValueError), (HostError, OSError), (FaultError, RuntimeError), (IncompleteError, RuntimeError)],
)
def test_code_that_knows_only_python_can_catch_them(kind: type[Exception], parent: type[Exception]):
    assert issubclass(kind, parent)


@pytest.mark.parametrize("kind", ALL)
def test_the_drawing_at_the_top_shows_every_error(kind: type[Exception]):
    assert kind.__name__ in (errors.__doc__ or "")
