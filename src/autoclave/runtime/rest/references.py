"""References in the description of a service: what they name, and schemas with all that they refer to. Pure.

A schema keeps its references, and gets what they name beside it, so that one that is used in many places is not
written out in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from autoclave.core import InputError
from autoclave.runtime.rest.expressions import steps_of

Json = Mapping[str, Any]


class References:
    """What references in a document name."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._direct: dict[str, tuple[str, ...]] = {}

    def resolved(self, value: Any) -> Any:
        """A value, or what it refers to; what refers to nothing but itself may be anything.

        Raises:
            InputError: there is nothing of that name.
        """
        seen: set[str] = set()
        while isinstance(value, Mapping) and isinstance(name := value.get("$ref"), str):
            if name in seen:
                return {}
            seen.add(name)
            value = self.named(name)
        return value

    def all_resolved(self, values: Mapping[str, Any] | None) -> dict[str, Any]:
        """Values by their names, each resolved."""
        return {str(name): self.resolved(value) for name, value in (values or {}).items()}

    def named(self, name: str) -> Any:
        """What a reference names.

        Raises:
            InputError: nothing in the document.
        """
        value: Any = self._document
        for part in _steps(name):
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                raise InputError(f"OpenAPI: {name}: there is nothing of that name in the document")
        return value

    def within(self, value: Any) -> set[str]:
        """All references in a value, and in what they name."""
        found: set[str] = set()
        left = list(_references(value))
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                if name not in self._direct:
                    self._direct[name] = tuple(_references(self.named(name)))
                left += self._direct[name]
        return found

    def schema(self, given: Any) -> dict[str, Any]:
        """A schema with all that it refers to, at the same places as in the document."""
        top = dict(self.resolved(given))
        tree: dict[str, Any] = {}
        for name in sorted(self.within(top), key=len):
            _place(tree, _steps(name), self.named(name))
        return {**tree, **top}


def _steps(name: str) -> list[str]:
    if not name.startswith("#/"):
        raise InputError(f"OpenAPI: {name}: there is nothing of that name in the document")
    return steps_of(unquote(name[1:]))


class _Branch(dict[str, Any]):
    """Made here, on the way to what a reference names."""


def _place(tree: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    """Put a value at its place, if that is not within another one that was put there whole."""
    *names, last = steps
    for name in names:
        branch = tree.setdefault(name, _Branch())
        if not isinstance(branch, _Branch):
            return
        tree = branch
    tree[last] = value


def _references(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            if isinstance(name := each.get("$ref"), str):
                yield name
            left += each.values()
        elif isinstance(each, list):
            left += each
