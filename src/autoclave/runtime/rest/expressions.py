"""Values out of a request and what came of it, by the runtime expressions of OpenAPI. Pure but for new identifiers.

    $request.path.NAME   $request.query.NAME   $request.header.NAME   $request.body#/pointer
    $response.status     $response.header.NAME                        $response.body#/pointer
    $before.body#/pointer    what was there before; $theirs: what somebody else has made of it; $item: one of a list
    $new.uuid                an identifier that nobody has

A text that is one expression becomes its value, whatever that is; within a longer text it stands in braces, as in
`/v1/{$response.body#/id}`. `{of: EXPRESSION, without: [/pointer]}` is a value without some of its parts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoclave.core import InputError
from autoclave.core.json import shown

_ROOTS = ("request", "response", "before", "theirs", "item", "new")
_WHOLE = re.compile(r"\$[a-z]+(\.[A-Za-z0-9_-]+)*(#(/[^{}]*)?)?")
_WITHIN = re.compile(r"\{(\$[^{}]+)\}")
_MISSING = object()
Scene = Mapping[str, Any]
"""What expressions speak of, by their first word."""


def evaluated(template: Any, scene: Scene, *, is_partial: bool = False) -> Any:
    """A template of JSON with a value in place of each expression; with `is_partial`, null where there is none yet.

    Raises:
        InputError: an expression has no value.
    """

    def inside(value: Any) -> Any:
        return evaluated(value, scene, is_partial=is_partial)

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
        return value(template, scene)
    return _WITHIN.sub(
        lambda found: str(value(found[1], scene)) if is_partial else _as_text(value(found[1], scene)), template
    )


def _pointers(given: Any) -> Sequence[str]:
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise InputError(f"without = {shown(given)}: must be a list of pointers, such as [/id]")
    return given


def value_of(expression: str, scene: Scene) -> Any:
    """The value of one expression.

    Raises:
        InputError: it has none.
    """
    if expression == "$new.uuid":
        return str(uuid.uuid4())
    found = _found(expression, scene)
    if found is _MISSING:
        raise InputError(f"{expression}: there is nothing of that name")
    return found


def value_or_none(expression: str, scene: Scene) -> Any:
    """The value of one expression; None if it has none."""
    found = _found(expression, scene)
    return None if found is _MISSING else found


def _found(expression: str, scene: Scene) -> Any:
    names, _, pointer = expression[1:].partition("#")
    value: Any = scene
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
    """All expressions in a template."""
    if isinstance(template, Mapping):
        for inner in template.values():
            yield from expressions_in(inner)
    elif isinstance(template, (list, tuple)):
        for inner in template:
            yield from expressions_in(inner)
    elif isinstance(template, str):
        if _WHOLE.fullmatch(template):
            yield template
        else:
            yield from _WITHIN.findall(template)


def require_expressions(template: Any, where: str) -> None:
    """Look whether all that begins like an expression is one.

    Raises:
        InputError: something is not.
    """
    for inner in _texts(template):
        if inner.startswith("$") and not _WHOLE.fullmatch(inner):
            raise InputError(f"{where}: {shown(inner)} is no expression; $request.body#/data/id is one")
    for given in _withouts(template):
        for pointer in _pointers(given):
            steps_of(pointer)
    for expression in expressions_in(template):
        root = re.split(r"[.#]", expression[1:])[0]
        if not _WHOLE.fullmatch(expression) or root not in _ROOTS:
            raise InputError(f"{where}: {shown(expression)} must begin with $ and one of {', '.join(_ROOTS)}")


def _withouts(template: Any) -> Iterator[Any]:
    if isinstance(template, Mapping):
        if set(template) == {"of", "without"}:
            yield template["without"]
        for inner in template.values():
            yield from _withouts(inner)
    elif isinstance(template, (list, tuple)):
        for inner in template:
            yield from _withouts(inner)


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for inner in template.values():
            yield from _texts(inner)
    elif isinstance(template, (list, tuple)):
        for inner in template:
            yield from _texts(inner)


def _as_text(value: Any) -> str:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{shown(value)} cannot be part of a text")


# --- Pointers --------------------------------------------------------------------------------------------------------


def steps_of(pointer: str) -> list[str]:
    """The names in a JSON pointer (RFC 6901).

    Raises:
        InputError: it is none.
    """
    if pointer and not pointer.startswith("/"):
        raise InputError(f"pointer {shown(pointer)}: must be empty or begin with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def at(value: Any, pointer: str, otherwise: Any = None) -> Any:
    """What is at a pointer, or `otherwise`."""
    for name in steps_of(pointer):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return otherwise
    return value


def with_value(value: Any, pointer: str, new: Any) -> Any:
    """A copy with something else at a pointer; objects on the way are made."""
    names = steps_of(pointer)
    if not names:
        return new
    copy: dict[str, Any] = dict(value) if isinstance(value, Mapping) else {}
    rest = "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names[1:])
    copy[names[0]] = with_value(copy.get(names[0]), rest, new)
    return copy


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
