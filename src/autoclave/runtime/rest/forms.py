"""Bodies of requests and answers: JSON, text, forms and bytes; and the form in which two states are compared. Pure.

A service may store something else than it was sent: other order, line ends, times. So what is compared is canonical,
and without what the catalogue calls volatile.

A mark stands in an answer for what cannot be sent back as it was: the key of the service, numbers that data here cannot
hold, and JSON that is not valid or gives a name twice. Marks are the same in every session, so that two answers about
one thing are the same. What has one in it is never sent: so a key is never written where only an answer had it, and
nothing is put back as something else. What cannot be sent is an InputError.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import urlencode

from autoclave.core import InputError
from autoclave.core.json import DEPTH_LIMIT, canonical_json, exact_float, is_deeper, shown
from autoclave.runtime.rest.expressions import without
from autoclave.runtime.vault.traces import found_in

Form = Literal["json", "icalendar", "bytes"]
"""Ways to compare a state: as JSON; as calendar data, in which order does not count; byte by byte."""
Json = Mapping[str, Any]
_MARK = "autoclave-hides-"
KEY = f"{_MARK}key"
"""In place of the key."""
_JSON = re.compile(r"application/(.+\+)?json")


def encoded(body: Any, content_type: str) -> bytes:
    kind = content_type.partition(";")[0].strip().lower()
    if body is None:
        return b""
    if _JSON.fullmatch(kind):
        return _as_json(body)
    if isinstance(body, Mapping) and set(cast("Json", body)) == {"base64"}:
        try:
            return base64.b64decode(str(body["base64"]), validate=True)
        except binascii.Error:
            raise InputError("body.base64: is no base64") from None
    if kind == "application/x-www-form-urlencoded" and isinstance(body, Mapping):
        fields = cast("Json", body).items()
        return urlencode({key: each if isinstance(each, str) else json.dumps(each) for key, each in fields}).encode()
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    raise InputError(f"body = {shown(body)}: for {kind} it must be a text, or bytes as {{base64: ...}}")


def _as_json(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:  # half of a surrogate, which JSON can only have escaped
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise InputError("body: has a number in it that is none in JSON, such as infinity") from None


def decoded(body: bytes, content_type: str, form: Form | None = None) -> Any:
    """A body as JSON data, from which it can be written again as it was; what cannot has a mark in it.

    JSON is parsed; all else is text, or `{"base64": ...}`. `form` says whether it is JSON; None: the content type does.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if form == "json" or (form is None and _JSON.fullmatch(kind)):
        return _from_json(body) if body else None
    return _as_text(body) if body or form else None


def _from_json(body: bytes) -> Any:
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_float=_number, parse_constant=mark_for, object_pairs_hook=_object)
        if not is_deeper(value, DEPTH_LIMIT):
            return value
    except (ValueError, RecursionError):
        pass
    text = _as_text(body)
    return mark_for(text if isinstance(text, str) else text["base64"])


def _number(text: str) -> float | str:
    """The number, if what is written for it is exactly the same."""
    try:
        return exact_float(text)
    except ValueError:
        return mark_for(text)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(members)) < len(members):
        raise ValueError("a name is given twice")
    return found


def _as_text(body: bytes) -> Any:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def canonical(body: Any, form: Form, volatile: Sequence[str]) -> Any:
    """Return the compared part of a body, as JSON data. `volatile`: JSON pointers, or names of calendar properties."""
    if form == "json":
        return without(body, volatile)
    if form == "icalendar" and isinstance(body, str):
        return _calendar(body, {name.upper() for name in volatile})
    return body


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _calendar(text: str, volatile: set[str]) -> Any:
    """Calendar data (RFC 5545) with lines unfolded, and properties and components in one order."""
    unfolded = re.sub(r"\r?\n[ \t]", "", text)
    stack: list[tuple[str, list[Any]]] = [("", [])]
    for line in unfolded.splitlines():
        name = re.split("[:;]", line, maxsplit=1)[0].strip().upper()
        if name == "BEGIN":
            stack.append((line.partition(":")[2].strip().upper(), []))
        elif name == "END" and len(stack) > 1:
            kind, inside = stack.pop()
            stack[-1][1].append([kind, sorted(inside, key=canonical_json)])
        elif line.strip() and name not in volatile:
            stack[-1][1].append(name + line.strip()[len(name) :])
    return stack[0][1] if len(stack) == 1 else text


def mark_for(text: str) -> str:
    """In place of something that is written so."""
    return _MARK + text


def has_mark(value: Any) -> bool:
    """Return whether there is a mark anywhere in JSON data, however it is spelled there."""
    return bool(found_in(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), {"mark": _MARK}))


def require_no_mark(where: str, value: Any) -> None:
    if has_mark(value):
        raise InputError(
            f"{where}: has {_MARK}... in it, which stands for a key or for what cannot be written as it was; "
            "leave that out"
        )
