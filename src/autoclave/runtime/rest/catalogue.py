"""Catalogues: the operations of a service, what shows their effect, how each is taken back. Typed, and checked whole.

A catalogue is a YAML file. Those in `catalogues/` come with this program; a compensating request there that is `pinned`
was proven against the real service in our tests, any other is `unproven`. No request is made here.
"""

import re
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from autoclave.config import Config
from autoclave.core import InputError
from autoclave.core.json import first_error, nearest, rule_of, shown
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.grants import Verb
from autoclave.runtime.rest.expressions import at, checked_template, expressions_in, steps_of
from autoclave.runtime.rest.forms import Form
from autoclave.runtime.rest.schemas import require_schema
from autoclave.runtime.vault.injection import is_passed_on
from autoclave.runtime.vault.targets import path_of

_VERB_OF = {"GET": "read", "HEAD": "read", "POST": "create", "PUT": "modify", "PATCH": "modify", "DELETE": "delete"}
_VERB_OF |= {"MKCALENDAR": "create", "MKCOL": "create", "PROPFIND": "read", "REPORT": "read"}
_PARAMETER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_RESERVED = frozenset({"authorization", "cookie", "content-type", "if-match", "if-none-match"})
"""Headers with a place of their own: keys are in the vault, the others follow from the body and the read-back."""


def parameters_in(template: str) -> list[str]:
    return _PARAMETER.findall(template)


def is_header(name: str) -> bool:
    """Return whether a header can be set: it is no part of HTTP itself, and nobody else sets it."""
    return bool(_HEADER.fullmatch(name) and name.lower() not in _RESERVED and is_passed_on(name.encode()))


def require_value(where: str, value: str) -> str:
    """Return a string that can be the value of a header; raise InputError if it cannot."""
    if not _HEADER_VALUE.fullmatch(value):
        raise InputError(f"{where} = {shown(value)}: must be printable ASCII, since it goes into a header")
    return value


def _header(name: str) -> str:
    if not is_header(name):
        raise ValueError(
            f"{name!r} is no header that a catalogue can set: keys, conditions, the framing of requests and what has "
            "them taken for others are not its to say"
        )
    return name


def _pointer(given: str) -> str:
    steps_of(given)
    return given


def _target(given: str) -> str:
    path_of(_PARAMETER.sub("x", given))
    return given


Method = Annotated[str, Field(pattern="^[A-Z]{3,16}$")]
Pointer = Annotated[str, AfterValidator(_pointer)]
"""A JSON pointer."""
Target = Annotated[str, AfterValidator(_target)]
"""A path, maybe with a query."""
HeaderValue = Annotated[str, AfterValidator(partial(require_value, "value"))]
Schema = Annotated[dict[str, Any], AfterValidator(require_schema)]
Template = Annotated[Any, AfterValidator(checked_template)]
"""JSON with expressions in it."""
Templates = Annotated[dict[str, Any], AfterValidator(checked_template)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class Parameter(Config):
    """An argument that is not in the body. `form`: JSON Schema of its value."""

    place: Literal["path", "query", "header"] = "path"
    is_required: bool = True
    form: Schema = {"type": "string"}


class Body(Config):
    """The body of a request, with its JSON Schema."""

    content_type: HeaderValue = "application/json"
    is_required: bool = True
    form: Schema = {}


class ReadBack(Config):
    """A request that shows a state, and changes nothing. Its header `ETag` names the version."""

    path: Target
    method: Method = "GET"
    body: Template = None
    """The place of the key, where a service asks for it in the body."""
    form: Form = "json"
    volatile: Names = ()
    """Parts that differ without meaning: JSON pointers, or names of calendar properties."""
    added: Names = ()
    """Parts that the service adds to what it is sent: JSON pointers. Others that no request names belong to others."""
    absent: tuple[int, ...] = Field(default=(404, 410), strict=False)
    """Statuses that say that there is nothing."""
    absent_when: dict[Pointer, list[Any]] = {}
    """Values in the body, by pointers, any of which says so, whatever the status. No other refusal does."""

    @model_validator(mode="after")
    def _has_pointers(self) -> "ReadBack":
        for each in (*self.volatile, *self.added) if self.form == "json" else ():
            steps_of(each)
        return self

    def is_absence(self, status: int, body: Any) -> bool:
        told = (at(body, pointer) in values for pointer, values in self.absent_when.items())
        return status in self.absent or any(told)


class Listing(Config):
    """A request that lists what there is, page after page."""

    path: Target
    items: Pointer
    """Pointer to the list in a page."""
    id: Pointer
    """Pointer to the identifier in an item."""
    next: str = ""
    """Expression for the next page: a URL, whose query is asked for at the same path, or a token for the parameter
    `next_as`."""
    next_as: str = ""
    shows: Template = "$item"
    """The answer to the request that made an item, as far as compensating requests need it."""


class Undo(Config):
    """One way to take an operation back."""

    operation: str
    arguments: Templates = {}
    """For the compensating request."""
    when: Literal["existed", "absent", "any"] = "any"
    """For what was there before, for what was not, or for both."""
    grade: Guarantee = Field(default=Guarantee.EQUIVALENT, strict=False)
    leaves: dict[Pointer, Any] = {}
    """The state expected afterwards, by pointers; empty: the state before."""
    status: Literal["unproven", "pinned"] = "unproven"


class OperationSpec(Config):
    """A request that may be made, what it changes, and how that is taken back."""

    method: Method
    path: Annotated[Target, Field(pattern=r"^[^?]*$")]
    summary: str = ""
    parameters: dict[str, Parameter] = {}
    body: Body | None = None
    verb: Literal["", Verb] = ""
    """For the policy; empty: as the method says."""
    read_back: str = ""
    """The name of the read-back that shows what it changes; empty: nothing does."""
    subject: Templates = {}
    """The parameters of that read-back; those of the same name in the path need none."""
    is_guarded: bool = False
    """True if the service heeds If-Match and If-None-Match."""
    leaves: Literal["there", "absent", ""] = ""
    """True if its subject is there afterwards; empty: as the method says."""
    success: tuple[int, ...] = Field(default=(), strict=False)
    """The statuses that say that it was done; empty: all from 200 to 299."""
    undo: tuple[Undo, ...] = Field(default=(), strict=False)
    idempotency: str = ""
    """A key that we choose, by which the service does the same request once however often it comes: a pointer into the
    body, a parameter of the path, or a header."""
    listing: str = ""
    """The name of the listing in which what it made turns up."""
    contents: str = ""
    """The name of the listing of what goes with its subject, when that is deleted. An undo neither deletes nor brings
    back any of it: it is only for what had nothing in it."""
    touches: Names = ()
    """Templates of the paths that it writes to, if that is not its subject alone."""
    spend: float | str = 0.0
    """Its cost in the unit of the service: a number, or an expression."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "OperationSpec":
        for name, each in self.parameters.items():
            if each.place == "path" and name not in parameters_in(self.path):
                raise ValueError(f"parameters: {name!r} is not in the path {self.path!r}")
            if each.place == "header":
                _header(name)
        if self.has_key_in_body:
            steps_of(self.idempotency)
        elif self.idempotency and self.idempotency not in parameters_in(self.path):
            _header(self.idempotency)
        return self

    @property
    def is_reading(self) -> bool:
        return self.policy_verb == "read"

    @property
    def policy_verb(self) -> str:
        return self.verb or _VERB_OF.get(self.method, "modify")

    @property
    def leaves_it(self) -> bool:
        return self.leaves != "absent" if self.leaves else self.method != "DELETE"

    @property
    def needs_answer(self) -> bool:
        """True if what it changes is known only when it was answered."""
        return any(each.startswith("$response") for each in expressions_in(self.subject))

    @property
    def has_key_in_body(self) -> bool:
        return self.idempotency.startswith("/")

    @property
    def key_parameter(self) -> str:
        """The name of the argument for a key in a header or the path, which we choose; empty if there is none."""
        return "" if self.has_key_in_body else self.idempotency

    @cached_property
    def all_parameters(self) -> Mapping[str, Parameter]:
        """Those of the path, and the header of a key, that are declared nowhere as well."""
        found = {name: Parameter() for name in parameters_in(self.path)}
        if (key := self.key_parameter) and key not in found:
            found[key] = Parameter(place="header", is_required=False)
        return found | self.parameters


class Catalogue(Config):
    """All that is known of a service."""

    service: str
    headers: dict[Annotated[str, AfterValidator(_header)], HeaderValue] = {}
    """Of all requests."""
    refusals: dict[Pointer, Any] = {}
    """Values in the body of an answer, by pointers, that say that nothing was done, though the status does not."""
    read_backs: dict[str, ReadBack] = {}
    listings: dict[str, Listing] = {}
    operations: dict[str, OperationSpec]

    @model_validator(mode="after")
    def _is_consistent(self) -> "Catalogue":
        for name, spec in self.operations.items():
            self._check(f"operations.{name}", spec)
        return self

    def _check(self, where: str, spec: OperationSpec) -> None:
        for kind, known in (("read_back", self.read_backs), ("listing", self.listings), ("contents", self.listings)):
            _require_one_of(known, f"{where}.{kind}", getattr(spec, kind))
        shown_by = self.read_backs[spec.read_back].path if spec.read_back else ""
        for name in parameters_in(shown_by):
            if name not in spec.all_parameters and name not in spec.subject:
                raise ValueError(f"{where}.subject: the read-back {spec.read_back!r} needs {name!r} as well")
        for number, each in enumerate(spec.undo):
            self._check_undo(f"{where}.undo.{number}", spec, each)

    def _check_undo(self, where: str, spec: OperationSpec, undo: Undo) -> None:
        _require_one_of(self.operations, f"{where}.operation", undo.operation)
        other = self.operations[undo.operation]
        known: dict[str, Parameter | Body] = {**other.all_parameters, **({"body": other.body} if other.body else {})}
        for name in undo.arguments:
            if name not in known:
                raise ValueError(f"{where}.arguments.{name}: {undo.operation} has none; {nearest(name, list(known))}")
        for name, about in known.items():
            if about.is_required and name not in (*undo.arguments, other.key_parameter):
                raise ValueError(f"{where}.arguments: {undo.operation} needs {name!r}")

    def kept_headers(self) -> frozenset[str]:
        """Return the headers of answers that expressions of this catalogue read, besides the usual ones."""
        no_schemas = {"operations": {"__all__": {"body", "parameters"}}}
        found = re.findall(r"\$(?:response|before)\.header\.([\w-]+)", repr(self.model_dump(exclude=no_schemas)))
        return frozenset(name.lower() for name in found)

    def operation(self, name: str) -> OperationSpec:
        """An operation by its name; InputError if there is none."""
        if name not in self.operations:
            fix = nearest(name, list(self.operations))
            raise InputError(f"service {self.service}: operation {shown(name)}: there is none; {fix}")
        return self.operations[name]


def _require_one_of(known: Mapping[str, Any], where: str, given: str) -> None:
    if given and given not in known:
        raise ValueError(f"{where} = {shown(given)}: there is none; {nearest(given, list(known))}")


def catalogue_from(given: Any, where: str) -> Catalogue:
    """A catalogue out of JSON data, or an InputError that begins with `where`."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: must be an object with the names service and operations")
    try:
        return Catalogue.model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        place = ".".join(str(part) for part in first["loc"])
        is_unknown = first["type"] == "extra_forbidden"
        rule = "is not a field of a catalogue" if is_unknown else rule_of(first["msg"])
        raise InputError(": ".join(filter(None, (where, place, rule)))) from None
