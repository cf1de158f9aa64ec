"""JSON Schema: whether something is one, and whether a value is as it says, which takes no longer than it may.

No other schema is ever fetched. Steps are counted, and each match of a pattern has a time limit, since a schema may
be written by who wants to keep others waiting: patterns that try all ways, references that fork again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.install import install_command
from autoclave.core.json import shown

_MOST_STEPS = 200_000
"""Keywords of schemas that are looked at for one value: about two seconds."""
_MATCH_S = 1.0


class _TooLong(Exception):
    """It takes longer than it may."""


def _missing() -> HostError:
    return HostError(f"arguments of services need a library. Fix: {install_command('runtime')}")


def require_schema(where: str, form: Mapping[str, Any]) -> None:
    """Look whether something is a JSON Schema that values can be checked by.

    Raises:
        InputError: it is not.
        HostError: the library is missing.
    """
    if not form:
        return
    try:
        import regex
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
    except ImportError:
        raise _missing() from None
    try:
        Draft202012Validator.check_schema(dict(form))
    except SchemaError as error:
        raise InputError(f"{where}: is no JSON Schema ({error.message[:200]})") from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply") from None
    found = list(_keywords(form))
    for pattern in _patterns(found):
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise InputError(f"{where}: {shown(pattern)} is no pattern ({str(error)[:100]})") from None
    if elsewhere := [name for key, name in found if key == "$ref" and isinstance(name, str) and name[:1] != "#"]:
        raise InputError(f"{where}: refers to {shown(elsewhere[0])}, and no other schema is fetched")
    if {"patternProperties", "unevaluatedProperties"} <= {name for name, _ in found}:
        raise InputError(f"{where}: has patternProperties and unevaluatedProperties, which are not known here together")


def require_form(where: str, value: Any, form: Mapping[str, Any]) -> None:
    """Look whether a value is as a schema says.

    Raises:
        InputError: it is not, or the schema needs another one, or it takes too long to see.
        HostError: the library is missing.
    """
    if not form:
        return
    validator = _validator(form)
    from referencing.exceptions import Unresolvable

    try:
        error = next(iter(validator.iter_errors(value)), None)
    except Unresolvable:
        raise InputError(f"{where}: its schema refers to another one, and none is fetched") from None
    except (_TooLong, TimeoutError, RecursionError):
        raise InputError(f"{where}: takes too long to be checked by its schema") from None
    if error is not None:
        place = "".join(f".{part}" for part in error.absolute_path)
        raise InputError(f"{where}{place} = {shown(error.instance)}: {error.message[:200]}")


def _keywords(form: Any) -> Iterator[tuple[str, Any]]:
    """All names in a schema, with what they have."""
    left = [form]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            yield from value.items()
            left += value.values()
        elif isinstance(value, list):
            left += value


def _patterns(found: list[tuple[str, Any]]) -> Iterator[str]:
    for name, value in found:
        if name == "pattern" and isinstance(value, str):
            yield value
        elif name == "patternProperties" and isinstance(value, Mapping):
            yield from value


# --- Checking --------------------------------------------------------------------------------------------------------


def _validator(form: Mapping[str, Any]) -> Any:
    try:
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry
    except ImportError:
        raise _missing() from None
    num_steps = 0

    def counted(check: Callable[..., Any], *given: Any) -> Iterator[Any]:
        nonlocal num_steps
        num_steps += 1
        if num_steps > _MOST_STEPS:
            raise _TooLong
        yield from check(*given) or ()

    ours = {"pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional}
    checks = {**Draft202012Validator.VALIDATORS, **ours}
    kind = validators.extend(Draft202012Validator, {name: partial(counted, check) for name, check in checks.items()})
    return kind(dict(form), registry=Registry())


def _matches(pattern: str, text: str) -> bool:
    import regex

    return regex.search(pattern, text, timeout=_MATCH_S) is not None


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if isinstance(value, str) and not _matches(pattern, value):
        yield ValidationError(f"{shown(value)} does not match {shown(pattern)}")


def _pattern_properties(validator: Any, given: Mapping[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    for pattern, inner in given.items() if isinstance(value, Mapping) else ():
        for name in value:
            if _matches(pattern, name):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional(validator: Any, inner: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    from jsonschema import ValidationError

    for name in value if isinstance(value, Mapping) else ():
        if name in schema.get("properties", {}) or any(_matches(p, name) for p in schema.get("patternProperties", {})):
            continue
        if inner is False:
            yield ValidationError(f"Additional properties are not allowed ({shown(name)} was unexpected)")
        else:
            yield from validator.descend(value[name], inner, path=name)
