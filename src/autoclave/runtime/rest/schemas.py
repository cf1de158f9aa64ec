"""Check values by JSON Schema (2020-12) in bounded time: schemas may come from the description of a service.

No other schema is fetched. The regular expressions run in linear time, or within a limit of backtracking steps, and a
schema that applies too many subschemas to one value is refused. What does not hold is an InputError.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from autoclave.core import InputError
from autoclave.core.json import shown
from autoclave.runtime.rest.expressions import at

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

_MOST_APPLIED = 200_000
"""Subschemas that are applied to one value."""
_MOST_BACKTRACKING = 1_000_000
_SCHEMAS = ("not", "if", "then", "else", "items", "contains", "propertyNames", "additionalProperties")
_SCHEMAS += ("unevaluatedItems", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS_BY_NAME = ("patternProperties", "dependentSchemas")


def require_schema(form: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema that values can be checked by."""
    _validator(form)
    return form


def require_form(where: str, value: Any, form: Mapping[str, Any]) -> None:
    from jsonschema_rs import ValidationError

    validator = _validator(form)
    try:
        if not validator.is_valid(value):  # remembers what it has seen, `validate` alone does not
            validator.validate(value)
    except ValidationError as error:
        place = "".join(f".{part}" for part in error.instance_path)
        raise InputError(f"{where}{place} = {shown(error.instance)}: {error.message[:200]}") from None
    except ValueError as error:
        raise InputError(f"{where}: cannot be checked by its schema ({error})") from None


def _validator(form: Mapping[str, Any]) -> "Draft202012Validator":
    import jsonschema_rs

    try:
        limits = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MOST_BACKTRACKING)
        validator = jsonschema_rs.Draft202012Validator(dict(form), pattern_options=limits, offline=True)
        number = _num_applied(form, form, {})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = getattr(error, "message", str(error))[:200]
        raise InputError(f"is not a JSON Schema that can be used ({reason})") from None
    if number > _MOST_APPLIED:
        raise InputError(f"applies more than {_MOST_APPLIED:,} subschemas to one value")
    return validator


def _num_applied(form: Any, root: Mapping[str, Any], known: dict[int, int]) -> int:
    """Return an upper bound of the subschemas that are applied to one value and to one path of its members."""
    if not isinstance(form, (Mapping, list)):
        return 0
    if id(form) in known:
        return known[id(form)]
    known[id(form)] = 1  # within itself: the validator remembers what it has seen
    if isinstance(form, list):
        parts, members = [*form], list[int]()
    else:
        name = form.get("$ref", "#/")
        is_moved = "$dynamicRef" in form or ("$id" in form and form is not root)
        if is_moved or not (name == "#" or name.startswith("#/")):
            raise ValueError(f"{shown(name)} is not a pointer into it")
        parts = [form.get(each) for each in _SCHEMAS]
        parts += [inner for each in _SCHEMAS_BY_NAME for inner in form.get(each, {}).values()]
        parts += [at(root, unquote(name[1:]))] if "$ref" in form else []
        members = [_num_applied(each, root, known) for each in form.get("properties", {}).values()]
    number = 1 + sum(_num_applied(each, root, known) for each in parts) + max(members, default=0)
    known[id(form)] = number
    return number
