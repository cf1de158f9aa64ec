"""Values out of a request and what came of it, by the runtime expressions of OpenAPI. Pure.

    $request.path.NAME   $request.query.NAME   $request.header.NAME   $request.body#/pointer
    $response.status     $response.header.NAME                        $response.body#/pointer
    $before.body#/pointer    what was there before; $item: one of a list

A string that is one expression becomes its value, whatever that is; within a longer string it stands in braces, as in
`/v1/{$response.body#/id}`. `{of: EXPRESSION, without: [/pointer]}` is a value without some of its parts. What is not an
expression or pointer, or has no value, is an InputError.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoclave.core import InputError
from autoclave.core.json import shown

if TYPE_CHECKING:
    from jsonpointer import JsonPointer

_ROOTS = ("request", "response", "before", "item")
_WHOLE = re.compile(r"\$([a-z]+)(\.[A-Za-z0-9_-]+)*(#(/[^{}]*)?)?")
_WITHIN = re.compile(r"\{(\$[^{}]+)\}")
_MISSING = object()
Context = Mapping[str, Any]
"""The sources of values in expressions, by their first word."""


def value_of(expression: str, context: Context, otherwise: Any = _MISSING) -> Any:
    """The value of one expression, or `otherwise` where that is given."""
    names, _, pointer = expression[1:].partition("#")
    found: Any = context
    for name in names.split("."):
        found = found.get(name, found.get(name.lower())) if isinstance(found, Mapping) else None
    found = otherwise if found is None else at(found, pointer, otherwise)
    if found is _MISSING:
        raise InputError(f"{expression}: there is nothing of that name")
    return found


def evaluated(template: Any, context: Context, otherwise: Any = _MISSING) -> Any:
    """A template of JSON with a value in place of each expression; with `otherwise` for those that have none."""

    def text_of(found: re.Match[str]) -> str:
        value = value_of(found[1], context, otherwise)
        if value is None or isinstance(value, (bool, Mapping, list)):
            raise InputError(f"{shown(value)} cannot be part of a string")
        return str(value)

    if _is_reduced(template):
        return without(evaluated(template["of"], context, otherwise), template["without"])
    if isinstance(template, Mapping):
        return {key: evaluated(inner, context, otherwise) for key, inner in template.items()}
    if isinstance(template, (list, tuple)):
        return [evaluated(inner, context, otherwise) for inner in template]
    if not isinstance(template, str):
        return template
    return value_of(template, context, otherwise) if _WHOLE.fullmatch(template) else _WITHIN.sub(text_of, template)


def checked_template(template: Any) -> Any:
    """A template in its one spelling: what is one expression stands without braces and without an empty pointer."""
    if _is_reduced(template):
        for pointer in template["without"]:
            steps_of(pointer)
        return {"of": checked_template(template["of"]), "without": template["without"]}
    if isinstance(template, Mapping):
        return {key: checked_template(inner) for key, inner in template.items()}
    if isinstance(template, (list, tuple)):
        return [checked_template(inner) for inner in template]
    if not isinstance(template, str):
        return template
    whole = _WITHIN.fullmatch(template)
    template = whole[1] if whole else template
    for each in [template] if template.startswith("$") else _WITHIN.findall(template):
        if not (found := _WHOLE.fullmatch(each)):
            raise InputError(f"{shown(each)} is not an expression; $request.body#/data/id is one")
        if found[1] not in _ROOTS:
            raise InputError(f"{shown(each)} must begin with $ and one of {', '.join(_ROOTS)}")
    return template.removesuffix("#") if template.startswith("$") else template


def is_general(template: Any) -> bool:
    """Return True if every value in a template comes from request, answer or the state before, and none is its own."""
    if _is_reduced(template):
        return is_general(template["of"])
    if isinstance(template, str):
        return bool(found := _WHOLE.fullmatch(template)) and found[1] != "item"
    return bool(values := _inside(template)) and all(is_general(inner) for inner in values)


def expressions_in(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield from [template] if _WHOLE.fullmatch(template) else _WITHIN.findall(template)
    for inner in _inside(template):
        yield from expressions_in(inner)


def _inside(template: Any) -> list[Any]:
    if isinstance(template, Mapping):
        return list(template.values())
    return list(template) if isinstance(template, (list, tuple)) else []


def _is_reduced(template: Any) -> bool:
    if not isinstance(template, Mapping) or set(template) != {"of", "without"}:
        return False
    pointers = template["without"]
    return isinstance(pointers, (list, tuple)) and all(isinstance(each, str) for each in pointers)


def steps_of(pointer: str) -> list[str]:
    return _pointer(pointer).parts


def at(value: Any, pointer: str, otherwise: Any = None) -> Any:
    found = _pointer(pointer).resolve(value, _MISSING)
    return otherwise if found is _MISSING or type(found).__name__ == "EndOfList" else found


def with_value(value: Any, pointer: str, new: Any) -> Any:
    """Return a copy of an object with something else at a pointer; objects on the way are made."""
    from jsonpointer import JsonPointerException

    try:
        return _pointer(pointer).set({} if value is None else value, new, inplace=False, create=True)
    except JsonPointerException:
        raise InputError(f"pointer {shown(pointer)}: leads through what has no names") from None


def _pointer(pointer: str) -> "JsonPointer":
    from jsonpointer import JsonPointer, JsonPointerException

    try:
        return JsonPointer(pointer)
    except JsonPointerException:
        raise InputError(f"pointer {shown(pointer)}: must be empty or begin with /, with ~0 for ~") from None


def without(value: Any, pointers: Sequence[str]) -> Any:
    """A copy without what is at some pointers; `*` in one stands for every item of a list or object."""
    for pointer in pointers:
        value = _without(value, steps_of(pointer))
    return value


def _without(value: Any, names: Sequence[str]) -> Any:
    if not names or not isinstance(value, (Mapping, list)):
        return value
    first, *rest = names
    items = list(value.items() if isinstance(value, Mapping) else enumerate(value))
    left = [
        (key, _without(inner, rest) if first in ("*", str(key)) else inner)
        for key, inner in items
        if rest or first not in ("*", str(key))
    ]
    return dict(left) if isinstance(value, Mapping) else [inner for _, inner in left]
