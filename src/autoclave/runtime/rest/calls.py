"""A call out of an operation and its arguments, checked against what the catalogue says of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from autoclave.core import InputError
from autoclave.core.json import nearest, shown
from autoclave.runtime.rest.catalogue import Catalogue, OperationSpec, parameters_in, require_value
from autoclave.runtime.rest.forms import encoded, require_no_mark
from autoclave.runtime.rest.parts import Call
from autoclave.runtime.rest.schemas import require_form

_MOST_PATH = 4096


def call_of(name: str, spec: OperationSpec, arguments: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
    """The call of an operation. `headers` are those that the service wants of all.

    Raises:
        InputError: an argument is missing, unknown, or not as the catalogue says.
    """
    known = [*spec.all_parameters, *(["body"] if spec.body else [])]
    for given in arguments:
        if given not in known:
            raise InputError(f"{name}.{given}: no such argument; {nearest(given, known) if known else 'it has none'}")
    require_no_mark(name, arguments)
    by_place: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for parameter, about in spec.all_parameters.items():
        if parameter in arguments:
            by_place[about.place][parameter] = value = arguments[parameter]
            require_form(f"{name}.{parameter}", value, about.form)
        elif about.is_required and parameter != spec.key_parameter:
            raise InputError(f"{name}.{parameter}: is missing")
    body = arguments.get("body")
    if spec.body and body is not None:
        require_form(f"{name}.body", body, spec.body.form)
    elif spec.body and spec.body.is_required:
        raise InputError(f"{name}.body: is missing")
    content_type = spec.body.content_type if spec.body else "application/json"
    encoded(body, content_type)
    query = urlencode({key: _text(value) for key, value in by_place["query"].items()})
    own = {key: require_value(f"{name}.{key}", str(value)) for key, value in by_place["header"].items()}
    return Call(
        spec.method,
        filled(spec.path, by_place["path"]) + (f"?{query}" if query else ""),
        {**headers, **own},
        body,
        content_type,
        by_place["path"],
        by_place["query"],
    )


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Path and query with values in place of their parameters, each a name of its own whatever is in it.

    Raises:
        InputError: a value is missing, or cannot be there.
    """
    path, mark, query = template.partition("?")
    for name in parameters_in(template):
        text = _text(values.get(name, ""))
        if name in parameters_in(path):
            if text in ("", ".", "..") or any(ord(each) < 32 or ord(each) == 127 for each in text):
                raise InputError(f"path {template}: {name} = {shown(text)} cannot be a part of it")
            path = path.replace(f"{{{name}}}", quote(text, safe="@:!$&'()*+,;=~"), 1)
        elif name not in values:
            raise InputError(f"path {template}: {name} is missing")
        query = query.replace(f"{{{name}}}", quote(text, safe=""))
    if len(path) > _MOST_PATH:
        raise InputError(f"path {template}: is longer than {_MOST_PATH} characters")
    return f"{path}{mark}{query}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def free_call(method: str, target: str, body: Any, content_type: str, catalogue: Catalogue | None) -> Call:
    """The call of a request that no catalogue has.

    Raises:
        InputError: it cannot be sent.
    """
    if not re.fullmatch(r"/[!-~]*", target) or "#" in target or len(target) > _MOST_PATH:
        raise InputError(f"path {shown(target)}: must begin with / and be ASCII, the rest percent-encoded")
    require_value("content_type", content_type)
    require_no_mark(f"{method} {target[:200]}", [target, body])
    encoded(body, content_type)
    return Call(method, target, dict(catalogue.headers) if catalogue else {}, body, content_type)
