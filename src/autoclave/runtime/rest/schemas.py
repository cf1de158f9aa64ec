"""JSON Schema: whether something is one, and whether a value is as it says. No other schema is ever fetched for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoclave.core import HostError, InputError
from autoclave.core.json import shown


def require_schema(where: str, form: Mapping[str, Any]) -> None:
    """Look whether something is a JSON Schema.

    Raises:
        InputError: it is not.
        HostError: the library is missing.
    """
    validator = _validator(form)
    from jsonschema.exceptions import SchemaError

    try:
        validator.check_schema(dict(form))
    except SchemaError as error:
        raise InputError(f"{where}: is no JSON Schema ({error.message[:200]})") from None


def require_form(where: str, value: Any, form: Mapping[str, Any]) -> None:
    """Look whether a value is as a schema says.

    Raises:
        InputError: it is not, or the schema needs another one.
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
    if error is not None:
        place = "".join(f".{part}" for part in error.absolute_path)
        raise InputError(f"{where}{place} = {shown(error.instance)}: {error.message[:200]}")


def _validator(form: Mapping[str, Any]) -> Any:
    try:
        from jsonschema import Draft202012Validator
        from referencing import Registry
    except ImportError:
        raise HostError("arguments of services need a library. Mend: pip install 'autoclave[runtime]'") from None
    return Draft202012Validator(dict(form), registry=Registry())
