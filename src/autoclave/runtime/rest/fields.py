"""Texts in catalogues that have one form: methods, pointers, paths with parameters in braces, and headers. Pure."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.runtime.rest.expressions import steps_of
from autoclave.runtime.vault.injection import is_passed_on
from autoclave.runtime.vault.targets import path_of

PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_RESERVED = frozenset({"authorization", "cookie", "content-type", "if-match", "if-none-match"})
"""Headers with a place of their own: keys are in the vault, the others follow from the body and the read-back."""
_METHOD = re.compile(r"[A-Z]{3,16}")
_MOST_IN_SEGMENT = 2


def parameters_in(template: str) -> list[str]:
    """The names of the parameters in a template of a path."""
    return PARAMETER.findall(template)


def shape_of(template: str) -> str:
    """A path with its parameters without names: the same thing may be called differently."""
    return PARAMETER.sub("{}", template)


def matcher_of(template: str) -> re.Pattern[str]:
    """Return an expression for the paths of a template, with a group for each parameter."""
    pieces = PARAMETER.split(template)
    return re.compile("".join("([^/]+)" if place % 2 else re.escape(piece) for place, piece in enumerate(pieces)))


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


# --- Headers ---------------------------------------------------------------------------------------------------------


def is_header(name: str) -> bool:
    """Whether a header can be set: it is no part of HTTP itself, and nobody else sets it."""
    return bool(_HEADER.fullmatch(name) and name.lower() not in _RESERVED and is_passed_on(name.encode()))


def require_header(where: str, name: str) -> None:
    """Check that a header can be set.

    Raises:
        InputError: it cannot.
    """
    if not is_header(name):
        raise InputError(
            f"{where}: {name!r} is no header that a catalogue can set: keys, conditions, the framing of requests and "
            "what has them taken for others are not its to say"
        )


def require_value(where: str, value: str) -> None:
    """Check that a text can be in a header.

    Raises:
        InputError: it cannot.
    """
    if not _HEADER_VALUE.fullmatch(value):
        raise InputError(f"{where} = {shown(value)}: must be printable ASCII, since it goes into a header")
