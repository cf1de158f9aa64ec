"""Catalogues: the operations of a service, what shows their effect, how each is taken back. Typed, and checked whole.

A catalogue is a YAML file. Those in `catalogues/` come with this program; a compensating request there that is `pinned`
was proven against the real service in our tests, any other is `unproven`. No request is made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote

from pydantic import Field, ValidationError, field_validator, model_validator

from autoclave.config import Config
from autoclave.config.renamed import RENAMED_IN_CATALOGUES
from autoclave.core import InputError
from autoclave.core.json import first_error, nearest, rule_of, shown
from autoclave.runtime.guarantee import Guarantee
from autoclave.runtime.policy.grants import VERBS
from autoclave.runtime.rest.expressions import at, expressions_in, require_expressions, steps_of
from autoclave.runtime.rest.fields import (
    PARAMETER,
    Method,
    PlainPath,
    Pointer,
    Target,
    matcher_of,
    require_header,
    require_value,
    shape_of,
)
from autoclave.runtime.rest.forms import Form
from autoclave.runtime.rest.schemas import require_schema
from autoclave.runtime.vault.targets import path_of

_VERB_OF = {"GET": "read", "HEAD": "read", "POST": "create", "PUT": "modify", "PATCH": "modify", "DELETE": "delete"}
_VERB_OF |= {"MKCALENDAR": "create", "MKCOL": "create", "PROPFIND": "read", "REPORT": "read"}


class Parameter(Config):
    """An argument that is not in the body."""

    place: Literal["path", "query", "header"] = "path"
    name: str = ""
    """As the service calls it; empty: as here."""
    is_required: bool = True
    form: dict[str, Any] = {"type": "string"}
    """JSON Schema of the value."""


class Body(Config):
    """What the body of a request may be."""

    content_type: str = "application/json"
    is_required: bool = True
    form: dict[str, Any] = {}
    """JSON Schema of the body."""

    @field_validator("content_type")
    @classmethod
    def _is_value(cls, given: str) -> str:
        require_value("content_type", given)
        return given


class ReadBack(Config):
    """A request that shows a state, and changes nothing."""

    path: Target
    method: Method = "GET"
    body: Any = None
    """Where a service asks for it in the body."""
    form: Form = "json"
    volatile: tuple[str, ...] = Field(default=(), strict=False)
    """What differs without meaning anything: JSON pointers, or names of properties of a calendar."""
    added: tuple[str, ...] = Field(default=(), strict=False)
    """What the service adds to what it is sent: JSON pointers. All else that nobody asked for is somebody else's."""
    absent: tuple[int, ...] = Field(default=(404, 410), strict=False)
    """Statuses that say that there is nothing."""
    absent_when: dict[str, list[Any]] = {}
    """What says so in the body, by pointers, whatever the status: any of these values. No other refusal does."""
    etag: str = "$response.header.etag"
    """What names the version."""

    @model_validator(mode="after")
    def _has_pointers(self) -> ReadBack:
        for each in (*self.volatile, *self.added, *self.absent_when) if self.form == "json" else ():
            steps_of(each)
        return self

    def is_absence(self, status: int, body: Any) -> bool:
        """Whether an answer says that there is nothing."""
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
    """Expression for the next page: a URL of the same path, or a token for the parameter `next_as`."""
    next_as: str = ""
    """Of a header `Link`, the parameter of this name in its URL is the token."""
    shows: Any = "$item"
    """What the answer to the request that made an item would have been, as far as compensating requests need it."""
    most_pages: int = Field(default=100, gt=0)


class Undo(Config):
    """One way to take an operation back."""

    operation: str
    arguments: dict[str, Any] = {}
    """Templates with expressions, for the arguments of the compensating request."""
    when: Literal["existed", "absent", "any"] = "any"
    """For what was there before, for what was not, or for both."""
    is_for_empty: bool = False
    """Whether only for what had nothing in it; see `contents`."""
    grade: Guarantee = Field(default=Guarantee.EQUIVALENT, strict=False)
    window_s: float | None = Field(default=None, gt=0)
    """How long, in seconds, it can be taken back; null: without an end."""
    leaves: dict[Pointer, Any] = {}
    """What must be seen afterwards, by pointers; empty: what was there before."""
    status: Literal["unproven", "pinned"] = "unproven"


class Idempotency(Config):
    """A key that we choose, by which the service does the same request once however often it comes."""

    place: Literal["header", "body", "path"]
    name: str
    """Of the header, a pointer into the body, or a parameter of the path."""
    valid_s: float | None = Field(default=None, gt=0)
    """How long, in seconds, the service promises that; null: for ever."""


class Touches(Config):
    """What it reads, writes and adds to, if that is not its subject: templates of paths."""

    reads: tuple[str, ...] = Field(default=(), strict=False)
    writes: tuple[str, ...] = Field(default=(), strict=False)
    adds: tuple[str, ...] = Field(default=(), strict=False)
    """Additions to one thing commute with each other."""


class OperationSpec(Config):
    """A request that may be made, what it changes, and how that is taken back."""

    method: Method
    path: PlainPath
    summary: str = ""
    parameters: dict[str, Parameter] = {}
    body: Body | None = None
    verb: str = ""
    """For the policy; empty: as the method says."""
    read_back: str = ""
    """The name of the read-back that shows what it changes; empty: nothing does."""
    subject: dict[str, Any] = {}
    """Templates for the parameters of that read-back; those of the same name in the path need none."""
    is_guarded: bool = False
    """Whether the service heeds If-Match and If-None-Match."""
    leaves: Literal["there", "absent", ""] = ""
    """Whether its subject is there afterwards; empty: as the method says."""
    success: tuple[int, ...] = Field(default=(), strict=False)
    """The statuses that say that it was done; empty: all from 200 to 299."""
    undo: tuple[Undo, ...] = Field(default=(), strict=False)
    idempotency: Idempotency | None = None
    listing: str = ""
    """The name of the listing in which what it made turns up."""
    contents: str = ""
    """The name of the listing of what goes with its subject, when that is deleted. An undo never deletes any of it."""
    touches: Touches | None = None
    scopes: tuple[str, ...] = Field(default=(), strict=False)
    """The least that a token of OAuth must be for."""
    spend: float | str = 0.0
    """What it costs in the unit of the service: a number, or an expression."""
    source: str = ""
    """Where the service says so."""

    @model_validator(mode="after")
    def _is_consistent(self) -> OperationSpec:
        if self.verb and self.verb not in VERBS:
            raise ValueError(f"verb = {self.verb!r}: {nearest(self.verb, VERBS)}")
        names = set(PARAMETER.findall(self.path))
        declared = {each.name or name for name, each in self.parameters.items() if each.place == "path"}
        if extra := declared - names:
            raise ValueError(f"parameters: {sorted(extra)[0]!r} is not in the path {self.path!r}")
        for name, each in self.parameters.items():
            if each.place == "header":
                require_header("parameters", each.name or name)
        if self.idempotency and self.idempotency.place == "header":
            require_header("idempotency", self.idempotency.name)
        if self.idempotency and self.idempotency.place == "body":
            steps_of(self.idempotency.name)
        return self

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing."""
        return self.policy_verb == "read"

    @property
    def policy_verb(self) -> str:
        return self.verb or _VERB_OF.get(self.method, "modify")

    @property
    def leaves_it(self) -> bool:
        """Whether its subject is there afterwards."""
        return self.leaves != "absent" if self.leaves else self.method != "DELETE"

    @cached_property
    def key_parameter(self) -> str:
        """The name of the argument for a key in a header or the path, which we choose; empty if there is none."""
        key = self.idempotency
        if key is None or key.place == "body":
            return ""
        named = [
            name
            for name, each in self.parameters.items()
            if each.place == key.place and (each.name or name).lower() == key.name.lower()
        ]
        return named[0] if named else key.name

    @cached_property
    def all_parameters(self) -> Mapping[str, Parameter]:
        """Those of the path, and the header of a key, that are declared nowhere as well."""
        declared = {each.name or name for name, each in self.parameters.items()}
        found = {name: Parameter() for name in PARAMETER.findall(self.path) if name not in declared}
        if self.idempotency and self.idempotency.place == "header" and self.key_parameter not in self.parameters:
            found[self.key_parameter] = Parameter(place="header", is_required=False)
        return found | self.parameters


class Catalogue(Config):
    """All that is known of a service."""

    service: str
    documentation: str = ""
    base_url: str = ""
    """Where it is, if there is only one."""
    is_described: bool = False
    """True for a catalogue derived from an OpenAPI description: a compensating request may then target nothing but
    what its operation changed."""
    headers: dict[str, str] = {}
    """Of all requests."""
    refusals: dict[Pointer, Any] = {}
    """What says in the body of an answer, by pointers, that nothing was done, though the status does not."""
    read_backs: dict[str, ReadBack] = {}
    listings: dict[str, Listing] = {}
    operations: dict[str, OperationSpec]

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            require_header("headers", name)
            require_value(f"headers.{name}", value)
        return given

    @model_validator(mode="after")
    def _is_consistent(self) -> Catalogue:
        shapes: dict[tuple[str, str], str] = {}
        for name, spec in self.operations.items():
            twin = shapes.setdefault((spec.method, shape_of(spec.path)), name)
            try:
                self._check(name, spec)
                if twin != name:
                    raise InputError(
                        f"operations.{name}: {spec.method} {spec.path} is also {twin!r}; one of them must go"
                    )
            except InputError as error:
                raise ValueError(str(error)) from None
        return self

    def _check(self, name: str, spec: OperationSpec) -> None:
        where = f"operations.{name}"
        named = [("read_back", spec.read_back, self.read_backs), ("listing", spec.listing, self.listings)]
        named.append(("contents", spec.contents, self.listings))
        for kind, given, known in named:
            if given and given not in known:
                raise InputError(f"{where}.{kind} = {shown(given)}: there is none; {nearest(given, list(known))}")
        require_expressions(spec.subject, f"{where}.subject")
        for parameter, about in spec.parameters.items():
            require_schema(f"{where}.parameters.{parameter}.form", about.form)
        if spec.body:
            require_schema(f"{where}.body.form", spec.body.form)
        if spec.read_back:
            missing = (
                set(PARAMETER.findall(self.read_backs[spec.read_back].path))
                - set(spec.all_parameters)
                - set(spec.subject)
            )
            if missing:
                raise InputError(
                    f"{where}.subject: the read-back {spec.read_back!r} needs {sorted(missing)[0]!r} as well"
                )
        for number, each in enumerate(spec.undo):
            self._check_undo(f"{where}.undo.{number}", each)

    def _check_undo(self, where: str, undo: Undo) -> None:
        if undo.operation not in self.operations:
            fix = nearest(undo.operation, list(self.operations))
            raise InputError(f"{where}.operation = {shown(undo.operation)}: there is none; {fix}")
        require_expressions(undo.arguments, f"{where}.arguments")
        other = self.operations[undo.operation]
        known = [*other.all_parameters, *(["body"] if other.body else [])]
        for name in undo.arguments:
            if name not in known:
                raise InputError(f"{where}.arguments.{name}: {undo.operation} has none; {nearest(name, known)}")
        needed = [name for name, about in other.all_parameters.items() if about.is_required]
        needed = [name for name in needed if name != other.key_parameter]
        needed += ["body"] if other.body and other.body.is_required else []
        if missing := [each for each in needed if each not in undo.arguments]:
            raise InputError(f"{where}.arguments: {undo.operation} needs {missing[0]!r}")

    def kept_headers(self) -> frozenset[str]:
        """Return the headers of answers that expressions of this catalogue read, besides the usual ones."""
        no_schemas = {"operations": {"__all__": {"body", "parameters"}}}
        found = re.findall(r"\$(?:response|before)\.header\.([\w-]+)", repr(self.model_dump(exclude=no_schemas)))
        return frozenset(name.lower() for name in found)

    def operation(self, name: str) -> OperationSpec:
        """An operation by its name.

        Raises:
            InputError: there is none.
        """
        if name not in self.operations:
            fix = nearest(name, list(self.operations))
            raise InputError(f"service {self.service}: operation {shown(name)}: there is none; {fix}")
        return self.operations[name]

    def scopes(self, names: Iterable[str]) -> list[str]:
        """The least that a token must be for, to do these operations and take them back."""
        found: set[str] = set()
        for name in names:
            spec = self.operation(name)
            found |= set(spec.scopes).union(*(self.operation(each.operation).scopes for each in spec.undo))
        return sorted(found)

    def matched(self, method: str, target: str) -> tuple[str, dict[str, Any]] | None:
        """The operation that a request is, and its arguments but the body; None if it is none.

        Names that stand in a template win over parameters.

        Raises:
            InputError: its path can be read in several ways.
        """
        path, query = path_of(target), target.partition("?")[2]
        found: list[tuple[int, str, dict[str, Any]]] = []
        for name, spec in self.operations.items():
            if spec.method == method and (match := matcher_of(unquote(spec.path)).fullmatch(path)):
                names = PARAMETER.findall(spec.path)
                found.append((len(names), name, dict(zip(names, match.groups(), strict=True))))
        if not found:
            return None
        _, name, arguments = min(found, key=lambda each: each[0])
        asked = dict(parse_qsl(query, keep_blank_values=True))
        for key, about in self.operations[name].all_parameters.items():
            place = about.name or key
            if about.place == "path" and place in arguments:
                arguments[key] = arguments.pop(place)
            elif about.place == "query" and place in asked:
                arguments[key] = asked.pop(place)
        return None if asked else (name, arguments)


def needs_answer(spec: OperationSpec) -> bool:
    """Whether what it changes is known only when it was answered."""
    return any(each.startswith("$response") for each in expressions_in(spec.subject))


# --- Reading ---------------------------------------------------------------------------------------------------------


def catalogue_from(given: Any, where: str) -> Catalogue:
    """A catalogue out of JSON data.

    Raises:
        InputError: it is none; the message begins with `where`.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: must be an object with the names service and operations")
    try:
        return Catalogue.model_validate(given)
    except ValidationError as error:
        first = first_error(error)
        place = ".".join(str(part) for part in first["loc"])
        rule = "is not a field of a catalogue" if first["type"] == "extra_forbidden" else rule_of(first["msg"])
        if new := RENAMED_IN_CATALOGUES.get(str(first["loc"][-1])) if first["loc"] else None:
            rule = f"is now called {new}"
        raise InputError(f"{where}: {place + ': ' if place else ''}{rule}") from None
