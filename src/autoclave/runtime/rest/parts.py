"""Parts of an action: the request, calls, states before and after, answers. Data, to and from JSON.

A call is made of an operation and its arguments; what the catalogue does not permit of them is an InputError. Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote, urlencode

from pydantic import Field, TypeAdapter, model_validator

from autoclave.core import InputError
from autoclave.core.json import nearest, shown
from autoclave.runtime.interface import BaseOperation
from autoclave.runtime.rest.catalogue import OperationSpec, parameters_in, require_value
from autoclave.runtime.rest.expressions import at
from autoclave.runtime.rest.forms import Form, encoded, require_no_mark
from autoclave.runtime.rest.schemas import require_form

Json = Mapping[str, Any]
_MOST_PATH = 4096
_STRONG = re.compile(r'"[\x21\x23-\x7e]*"|[A-Za-z0-9._:+/=-]+')
"""An entity tag that names one version: no weak one, no list of several, no `*`. Some services leave the quotes out."""
ABSENT = "absent"
"""The digest of nothing."""


class Ask(BaseOperation):
    """Ask a service: one of its registered operations by name, or, where it has no catalogue, by method and path."""

    do: Literal["request"]
    service: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    """A connected service."""
    operation: str = ""
    """Of the catalogue of the service."""
    arguments: dict[str, Any] = {}
    """Its parameters by name, and `body`."""
    method: str = Field(default="", pattern=r"^[A-Z]*$")
    """Such as `PUT`."""
    path: str = ""
    """As the service sees it, with the query."""
    body: Any = None
    """JSON, a text, or bytes as `{"base64": ...}`."""
    content_type: str = "application/json"
    """Of the body."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> "Ask":
        if bool(self.operation) == bool(self.method or self.path) or bool(self.method) != bool(self.path):
            raise ValueError("give either operation (and arguments), or method and path (and body)")
        if self.operation and self.body is not None:
            raise ValueError("the body of an operation is the argument `body`")
        return self


@dataclass(frozen=True, slots=True)
class Call:
    """A request without a key. `target`: path and query; `path`, `query`: parameters by their names; `form`: of its
    answer, None if as its content type says.
    """

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    content_type: str = "application/json"
    path: Mapping[str, Any] = field(default_factory=dict[str, Any])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    form: Form | None = None

    @property
    def told(self) -> str:
        return f"{self.method} {self.target.partition('?')[0]}"

    @property
    def request(self) -> Json:
        """Return what expressions call `$request`."""
        return {"path": self.path, "query": self.query, "header": self.headers, "body": self.body}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service; names of headers in small letters."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None

    @property
    def response(self) -> Json:
        """Return what expressions call `$response`."""
        return {"status": self.status, "header": self.headers, "body": self.body}


@dataclass(frozen=True, slots=True)
class State:
    """The state of a subject. `digest` is of what counts in it; `etag` names the version, if there is one."""

    digest: str = ABSENT
    etag: str = ""
    body: Any = None

    @property
    def is_there(self) -> bool:
        return self.digest != ABSENT

    def is_same(self, other: "State") -> bool:
        """Return whether both are the same to a client."""
        return self.digest == other.digest


@dataclass(frozen=True, slots=True)
class Part:
    """One call of an action.

    Attributes:
        operation: its name in the catalogue; empty for a free request.
        arguments: what it was made from.
        call: what is sent.
        read_back: the name of the read-back that shows what it changes; empty if there is none.
        subject: the call of that read-back; None if there is none, or if only the answer will say.
        before: what that showed; None if it was not read.
        num_inside: how many things are in it that go with it; None if it was not read.
        guards: whether the call is sent on the condition that the subject is still so.
        listed: what its listing had before, if only a listing can tell whether it was done.
        is_keyed: whether it has a key by which the service does it once, however often it is sent.
        wanted: what an undo or redo has to bring about; None for any.
        leaves: in place of it, what has to be seen, by pointers.
        compensation: the name of the compensating request that it is.
        is_pinned: whether a developer answers for that; then it is never quarantined.
        proposed: that compensating request, if a model proposed it.
        answer, after: what came of it.
    """

    operation: str
    arguments: Json
    call: Call
    read_back: str = ""
    subject: Call | None = None
    before: State | None = None
    num_inside: int | None = None
    guards: bool = False
    listed: Sequence[str] | None = None
    is_keyed: bool = False
    wanted: State | None = None
    leaves: Json = field(default_factory=dict[str, Any])
    compensation: str = ""
    is_pinned: bool = False
    proposed: Json | None = None
    answer: Answer | None = None
    after: State | None = None

    @property
    def context(self) -> dict[str, Any]:
        """Return what expressions can speak of."""
        context: dict[str, Any] = {"request": self.call.request}
        context |= {"response": self.answer.response} if self.answer else {}
        if self.before and self.before.is_there:
            context["before"] = {"body": self.before.body, "header": {"etag": self.before.etag}}
        return context

    @property
    def existed(self) -> bool:
        """True if its subject was there before, as far as it was read."""
        return self.before is not None and self.before.is_there

    @property
    def has_aim(self) -> bool:
        """True if it is an undo or redo, of which is known what it has to bring about."""
        return self.wanted is not None or bool(self.leaves)

    @property
    def guard(self) -> dict[str, str]:
        """The headers that let it be done only while its subject is as it was."""
        if not self.guards or self.before is None:
            return {}
        if not self.before.is_there:
            return {"If-None-Match": "*"}
        return {"If-Match": self.before.etag} if _STRONG.fullmatch(self.before.etag) else {}

    def satisfies(self, now: State | None) -> bool:
        """Return whether the state is the one that this had to bring about; one that cannot be read is taken to be."""
        if now is None:
            return True
        if self.leaves:
            return now.is_there and all(at(now.body, pointer) == value for pointer, value in self.leaves.items())
        return self.wanted is None or now.is_same(self.wanted)

    def with_end(self, answer: Answer | None, after: State | None) -> "Part":
        return replace(self, answer=answer, after=after)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_PART = TypeAdapter(Part)


def part_from(plain: Json) -> Part:
    return _PART.validate_python(plain)


def call_of(name: str, spec: OperationSpec, arguments: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
    """The call of an operation. `headers` are those of all requests to the service."""
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
    """Path and query with values in place of their parameters, each a name of its own whatever is in it."""
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
    return f"{path}{mark}{query}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def free_call(method: str, target: str, body: Any, content_type: str) -> Call:
    """The call of a request to a service that has no catalogue."""
    if not re.fullmatch(r"/[!-~]*", target) or "#" in target or len(target) > _MOST_PATH:
        raise InputError(f"path {shown(target)}: must begin with / and be ASCII, the rest percent-encoded")
    require_value("content_type", content_type)
    require_no_mark(f"{method} {target[:200]}", [target, body])
    encoded(body, content_type)
    return Call(method, target, {}, body, content_type)
