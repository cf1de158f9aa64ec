"""Values out of a request and what came of it, by the runtime expressions of OpenAPI. Pure.

    $request.path.NAME   $request.query.NAME   $request.header.NAME   $request.body#/pointer
    $response.status     $response.header.NAME                        $response.body#/pointer
    $before.body#/pointer    what was there before; $item: one of a list

A text that is one expression becomes its value, whatever that is; within a longer text it stands in braces, as in
`/v1/{$response.body#/id}`. `{of: EXPRESSION, without: [/pointer]}` is a value without some of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.core.json import shown

if TYPE_CHECKING:
    from jsonpointer import JsonPointer

_ROOTS = ("request", "response", "before", "item")
_WHOLE = re.compile(r"\$[a-z]+(\.[A-Za-z0-9_-]+)*(#(/[^{}]*)?)?")
_WITHIN = re.compile(r"\{(\$[^{}]+)\}")
_MISSING = object()
Context = Mapping[str, Any]
"""What expressions speak of, by their first word."""


def evaluated(template: Any, context: Context, *, is_partial: bool = False) -> Any:
    """A template of JSON with a value in place of each expression; with `is_partial`, null where there is none yet.

    Raises:
        InputError: an expression has no value.
    """

    def inside(value: Any) -> Any:
        return evaluated(value, context, is_partial=is_partial)

    if isinstance(template, Mapping):
        if set(template) == {"of", "without"}:
            return without(inside(template["of"]), _pointers(template["without"]))
        return {key: inside(inner) for key, inner in template.items()}
    if isinstance(template, (list, tuple)):
        return [inside(inner) for inner in template]
    if not isinstance(template, str):
        return template
    value = value_or_none if is_partial else value_of
    if _WHOLE.fullmatch(template):
        return value(template, context)
    return _WITHIN.sub(
        lambda found: str(value(found[1], context)) if is_partial else _as_text(value(found[1], context)), template
    )


def _pointers(given: Any) -> Sequence[str]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise InputError(f"without = {shown(given)}: must be a list of pointers, such as [/id]")
    return given


def value_of(expression: str, context: Context) -> Any:
    """The value of one expression.

    Raises:
        InputError: it has none.
    """
    found = _found(expression, context)
    if found is _MISSING:
        raise InputError(f"{expression}: there is nothing of that name")
    return found


def value_or_none(expression: str, context: Context) -> Any:
    """The value of one expression; None if it has none."""
    found = _found(expression, context)
    return None if found is _MISSING else found


def _found(expression: str, context: Context) -> Any:
    names, _, pointer = expression[1:].partition("#")
    value: Any = context
    for name in names.split("."):
        if not isinstance(value, Mapping):
            return _MISSING
        value = value.get(name, value.get(name.lower(), _MISSING))
        if value is _MISSING or value is None:
            return _MISSING
    return at(value, pointer, _MISSING)


def normal(template: Any) -> Any:
    """A template in its one spelling: what is one expression stands without braces and without an empty pointer."""
    if isinstance(template, Mapping):
        return {key: normal(inner) for key, inner in template.items()}
    if isinstance(template, (list, tuple)):
        return [normal(inner) for inner in template]
    if not isinstance(template, str):
        return template
    whole = _WITHIN.fullmatch(template)
    return (whole[1] if whole else template).removesuffix("#") if whole or _WHOLE.fullmatch(template) else template


def is_general(template: Any) -> bool:
    """Whether every value in a template comes from request, answer or the state before, and none is its own."""
    if isinstance(template, Mapping):
        values = [template["of"]] if set(template) == {"of", "without"} else list(template.values())
    elif isinstance(template, (list, tuple)):
        values = list(template)
    else:
        is_whole = isinstance(template, str) and _WHOLE.fullmatch(template)
        return bool(is_whole) and re.split(r"[.#]", template[1:])[0] in ("request", "response", "before")
    return bool(values) and all(is_general(inner) for inner in values)


def expressions_in(template: Any) -> Iterator[str]:
    """Return all expressions in a template."""
    for each in _walk(template):
        if isinstance(each, str):
            yield from [each] if _WHOLE.fullmatch(each) else _WITHIN.findall(each)


def require_expressions(template: Any, where: str) -> None:
    """Check that all that begins like an expression is one.

    Raises:
        InputError: something is not.
    """
    for each in _walk(template):
        if isinstance(each, str) and each.startswith("$") and not _WHOLE.fullmatch(each):
            raise InputError(f"{where}: {shown(each)} is not an expression; $request.body#/data/id is one")
        if isinstance(each, Mapping) and set(each) == {"of", "without"}:
            for pointer in _pointers(each["without"]):
                steps_of(pointer)
    for expression in expressions_in(template):
        root = re.split(r"[.#]", expression[1:])[0]
        if not _WHOLE.fullmatch(expression) or root not in _ROOTS:
            raise InputError(f"{where}: {shown(expression)} must begin with $ and one of {', '.join(_ROOTS)}")


def _walk(template: Any) -> Iterator[Any]:
    """Yield a template and all that is in it."""
    yield template
    inside = template.values() if isinstance(template, Mapping) else template
    for each in inside if isinstance(template, (Mapping, list, tuple)) else ():
        yield from _walk(each)


def _as_text(value: Any) -> str:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{shown(value)} cannot be part of a text")


# --- Pointers --------------------------------------------------------------------------------------------------------


def steps_of(pointer: str) -> list[str]:
    """Return the names in a JSON pointer (RFC 6901).

    Raises:
        InputError: it is not a JSON pointer.
    """
    return _pointer(pointer).parts


def at(value: Any, pointer: str, otherwise: Any = None) -> Any:
    """Return what is at a pointer, or `otherwise`."""
    found = _pointer(pointer).resolve(value, _MISSING)
    return otherwise if found is _MISSING or type(found).__name__ == "EndOfList" else found


def with_value(value: Any, pointer: str, new: Any) -> Any:
    """Return a copy of an object with something else at a pointer; objects on the way are made.

    Raises:
        InputError: something on the way is neither an object nor a list.
    """
    from jsonpointer import JsonPointerException

    try:
        return _pointer(pointer).set({} if value is None else value, new, inplace=False, create=True)
    except JsonPointerException:
        raise InputError(f"pointer {shown(pointer)}: leads through what has no names") from None


def _pointer(pointer: str) -> JsonPointer:
    try:
        from jsonpointer import JsonPointer, JsonPointerException
    except ImportError:
        raise HostError(f"catalogues of services need a library. Fix: {install_command('runtime')}") from None
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
    if not names:
        return value
    name, rest = names[0], names[1:]

    def is_meant(key: object) -> bool:
        return name in ("*", str(key))

    if isinstance(value, Mapping):
        if not rest:
            return {key: inner for key, inner in value.items() if not is_meant(key)}
        return {key: _without(inner, rest) if is_meant(key) else inner for key, inner in value.items()}
    if isinstance(value, list):
        if not rest:
            return [inner for number, inner in enumerate(value) if not is_meant(number)]
        return [_without(inner, rest) if is_meant(number) else inner for number, inner in enumerate(value)]
    return value


def is_part_of(asked: Any, shown_value: Any) -> bool:
    """Whether all that `asked` says is in a value: objects may have more names, lists are as long and in order."""
    if isinstance(asked, Mapping):
        return isinstance(shown_value, Mapping) and all(
            key in shown_value and is_part_of(inner, shown_value[key]) for key, inner in asked.items()
        )
    if isinstance(asked, list):
        return (
            isinstance(shown_value, list)
            and len(asked) == len(shown_value)
            and all(is_part_of(one, other) for one, other in zip(asked, shown_value, strict=True))
        )
    if isinstance(asked, (int, float)) and isinstance(shown_value, (int, float)):  # 1.0 may be shown as 1
        return isinstance(asked, bool) == isinstance(shown_value, bool) and asked == shown_value
    return type(asked) is type(shown_value) and asked == shown_value
