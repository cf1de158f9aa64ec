"""References in the description of a service: what they name, and schemas with all that they refer to. Pure.

A schema keeps its references, and gets what they name beside it, so that one that is used in many places is not
written out in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from autoclave.core import InputError

Json = Mapping[str, Any]


class References:
    """What references in a document name."""

    def __init__(self, document: Json) -> None:
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        registry: Registry[Any] = Registry()
        self._resolver = registry.with_resource("", DRAFT202012.create_resource(document)).resolver()
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
        """Return what a reference names.

        Raises:
            InputError: nothing in the document.
        """
        from referencing.exceptions import Unresolvable

        try:
            if name.startswith("#/"):
                return self._resolver.lookup(name).contents
        except Unresolvable:
            pass
        raise InputError(f"OpenAPI: {name}: there is nothing of that name in the document")

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
        from jsonpointer import JsonPointer

        top = dict(self.resolved(given))
        tree: dict[str, Any] = {}
        for name in sorted(self.within(top), key=len):  # what is within another one is there already, and the same
            JsonPointer(unquote(name[1:])).set(tree, self.named(name), create=True)
        return {**tree, **top}


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
