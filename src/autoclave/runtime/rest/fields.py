"""Texts in catalogues that have one form: methods, pointers, and paths with parameters in braces. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from autoclave.runtime.rest.expressions import steps_of
from autoclave.runtime.vault.targets import path_of

PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_METHOD = re.compile(r"[A-Z]{3,16}")
_MOST_IN_SEGMENT = 2


def parameters_in(template: str) -> list[str]:
    """The names of the parameters in a template of a path."""
    return PARAMETER.findall(template)


def shape_of(template: str) -> str:
    """A path with its parameters without names: the same thing may be called differently."""
    return PARAMETER.sub("{}", template)


def _method(given: str) -> str:
    if not _METHOD.fullmatch(given):
        raise ValueError(f"{given!r} must be the name of a method in capitals")
    return given


def _pointer(given: str) -> str:
    steps_of(given)
    return given


def _target(given: str) -> str:
    path_of(PARAMETER.sub("x", given))
    return given


def _plain_path(given: str) -> str:
    if "?" in given:
        raise ValueError(f"{given!r} must have no query: parameters with place: query are put there")
    for segment in given.split("/"):
        if len(parameters_in(segment)) > _MOST_IN_SEGMENT or "}{" in segment:
            raise ValueError(f"{given!r}: {segment!r} has parameters that cannot be told apart")
    return _target(given)


Method = Annotated[str, AfterValidator(_method)]
Pointer = Annotated[str, AfterValidator(_pointer)]
"""A JSON pointer."""
PlainPath = Annotated[str, AfterValidator(_plain_path)]
Target = Annotated[str, AfterValidator(_target)]
"""A path, maybe with a query."""
